"""The registry: whole sets, ranks that share an address, listeners, freshness, sleep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from picker.core.load import Report
from picker.workers.adapters import Models
from picker.workers.registry import Registry

A, B = "10.0.0.1:8000", "[fd00::2]:8000"


@dataclass(frozen=True)
class Endpoint:
    address: str
    rank: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


def report(ended: float = 10.0, *, running: int = 0, asleep: bool = False) -> Report:
    return Report(begun=ended - 0.1, ended=ended, running=running, waiting=0, asleep=asleep)


def test_an_update_is_the_whole_set_and_listeners_hear_who_left_before_who_joined() -> None:
    registry, told = Registry(), []
    registry.listen(
        joined=lambda name: told.append(("joined", name)), left=lambda name: told.append(("left", name))
    )
    assert not registry.told
    registry.update([Endpoint(B), Endpoint(A)])
    assert registry.told
    assert registry.names == (A, B)
    registry.update([Endpoint(B), Endpoint(B, 1)])
    assert told == [("joined", A), ("joined", B), ("left", A), ("joined", B + "@1")]
    assert (registry.counts.joined, registry.counts.left) == (3, 1)
    assert A not in registry
    assert registry.record(A) is None


def test_the_order_is_that_of_names_whatever_discovery_says() -> None:
    one, two = Registry(), Registry()
    endpoints = [Endpoint(f"10.0.0.{n}:8000", r) for n in range(5) for r in range(2)]
    one.update(endpoints)
    two.update(endpoints[5:])
    two.update(reversed(endpoints))
    assert one.names == two.names
    assert [record.name for record in one.records] == list(one.names)
    assert one.routable(0) == one.names


def test_listeners_see_the_set_as_it_is_after_the_update() -> None:
    registry, seen = Registry(), []
    registry.listen(joined=lambda name: seen.append(name in registry and registry.names), left=lambda _: None)
    registry.update([Endpoint(A), Endpoint(B)])
    assert seen == [(A, B), (A, B)]


def test_an_empty_set_is_a_set_that_was_told() -> None:
    registry = Registry()
    registry.update([])
    assert registry.told
    assert registry.names == ()


def test_labels_that_change_keep_the_worker_and_its_report() -> None:
    registry = Registry()
    registry.update([Endpoint(A, labels={"v": "1"})])
    registry.heard(A, {0: report()})
    registry.update([Endpoint(A, labels={"v": "2"})])
    record = registry.record(A)
    assert record is not None
    assert record.labels == {"v": "2"}
    assert record.report == report()
    assert registry.counts.joined == 1


def test_ranks_of_one_address_share_a_scrape_and_have_their_own_reports() -> None:
    registry, heard = Registry(), []
    registry.listen(reported=lambda name, said: heard.append((name, said.running)))
    registry.update([Endpoint(A), Endpoint(A, 1)])
    assert registry.addresses == (A,)
    registry.heard(A, {0: report(running=1), 1: report(running=2)})
    assert heard == [(A, 1), (A + "@1", 2)]


def test_a_process_with_one_worker_is_that_worker_whatever_rank_it_calls_itself() -> None:
    registry = Registry()
    registry.update([Endpoint(A)])
    registry.heard(A, {3: report(running=7)})
    said = registry.report(A, 10.0)
    assert said is not None
    assert said.running == 7
    assert registry.counts.ranks_unnamed == 0


def test_ranks_that_a_page_lacks_or_discovery_does_not_name_are_counted() -> None:
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(A, 1)])
    registry.heard(A, {0: report(), 2: report()})
    assert (registry.counts.ranks_missing, registry.counts.ranks_unnamed) == (1, 1)
    missing = registry.record(A + "@1")
    assert missing is not None
    assert missing.ok is False
    assert "rank 1" in missing.error


def test_a_report_counts_only_while_it_is_fresh_and_failures_keep_the_last_good_one() -> None:
    registry = Registry(stale_seconds=5)
    registry.update([Endpoint(A)])
    assert registry.report(A, 0.0) is None
    registry.heard(A, {0: report(10.0, running=4)})
    registry.unheard(A, "no answer in 1 s")
    registry.unheard(A, "no answer in 1 s")
    record = registry.record(A)
    assert record is not None
    assert (record.ok, record.failures, record.error) == (False, 2, "no answer in 1 s")
    assert registry.report(A, 15.0) is not None
    assert registry.report(A, 15.1) is None
    registry.heard(A, {0: report(16.0)})
    assert (record.ok, record.failures, record.error) == (True, 0, "")


def test_a_worker_that_sleeps_is_not_routable_until_it_says_that_it_woke() -> None:
    registry = Registry(stale_seconds=1)
    registry.update([Endpoint(A), Endpoint(B)])
    registry.heard(A, {0: report(asleep=True)})
    assert registry.routable(10) == (B,)
    registry.unheard(A, "gone")
    assert registry.routable(1000) == (B,)
    registry.heard(A, {0: report(1000)})
    assert registry.routable(1000) == (A, B)


def test_a_scrape_that_ends_after_its_worker_left_changes_nothing() -> None:
    registry, heard = Registry(), []
    registry.listen(reported=lambda name, said: heard.append(name))
    registry.update([Endpoint(A)])
    registry.update([])
    registry.heard(A, {0: report()})
    registry.unheard(A, "late")
    assert heard == []
    assert registry.counts.ranks_unnamed == 0


def test_a_worker_that_comes_back_under_its_name_starts_without_a_report() -> None:
    registry = Registry()
    registry.update([Endpoint(A)])
    registry.heard(A, {0: report(asleep=True)})
    registry.update([])
    registry.update([Endpoint(A)])
    assert registry.report(A, 10.0) is None
    assert registry.routable(10.0) == (A,)


def test_a_worker_at_whose_address_nobody_listens_gets_no_more_requests_until_somebody_does() -> None:
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(B)])
    registry.heard(A, {0: report()})
    registry.unheard(A, "refused", unconnected=True)
    assert registry.routable(0) == (A, B), "one refusal may be a restart"
    registry.unheard(A, "refused", unconnected=True)
    assert registry.routable(0) == (B,)
    assert registry.names == (A, B)
    registry.heard(A, {0: report()})
    assert registry.routable(0) == (A, B)
    assert registry.counts.gone == 1


def test_a_worker_that_is_slow_or_answers_nonsense_stays() -> None:
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(B)])
    for _ in range(10):
        registry.unheard(A, "no answer in 1 s")
    registry.unheard(A, "refused", unconnected=True)
    registry.unheard(A, "no answer in 1 s")
    registry.unheard(A, "refused", unconnected=True)
    assert registry.routable(0) == (A, B)


def test_where_nobody_can_be_reached_from_here_all_stay() -> None:
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(B)])
    for _ in range(3):
        registry.unheard(A, "refused", unconnected=True)
        registry.unheard(B, "refused", unconnected=True)
    assert registry.routable(0) == (A, B)
    registry.heard(B, {0: report(asleep=True)})
    assert registry.routable(0) == (A,), "one that sleeps is no better than one that cannot be reached"


def models(*bases: str, **adapters: str) -> Models:
    return Models(adapters, frozenset(bases), frozenset(adapters))


def test_a_pool_is_mixed_while_workers_are_known_to_serve_different_models() -> None:
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(A, 1), Endpoint(B), Endpoint("10.0.0.3:8000")])
    assert not registry.mixed
    registry.listed(A, models("llama", "llama-latest"))
    assert not registry.mixed
    registry.listed(B, models("llama", "llama-latest", sql="llama"))
    assert not registry.mixed
    registry.listed(B, models("qwen"))
    assert registry.mixed
    assert [registry.serves(worker, "llama-latest") for worker in (A, f"{A}@1", B)] == [True, True, False]
    assert registry.serves(B, "qwen") is True
    assert registry.serves("10.0.0.3:8000", "qwen") is None
    assert registry.serves("10.9.9.9:8000", "qwen") is None
    registry.listed(B, None)
    assert not registry.mixed
    assert registry.serves(B, "qwen") is None


def test_a_pool_is_mixed_no_longer_when_the_odd_worker_leaves() -> None:
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(B)])
    registry.listed(A, models("llama"))
    registry.listed(B, models("qwen"))
    assert registry.mixed
    registry.update([Endpoint(A)])
    assert not registry.mixed


def test_a_list_without_base_models_says_nothing_of_them() -> None:
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(B)])
    registry.listed(A, models("llama"))
    registry.listed(B, models(sql="llama"))
    assert not registry.mixed
    assert registry.serves(B, "llama") is None
