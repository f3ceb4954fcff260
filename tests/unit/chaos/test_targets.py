"""What differs by target: faults that are offered, checks that cannot be judged, replicas that come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from chaos.checkers import judge
from chaos.checkers.running import KeptRunning
from chaos.checks import ALWAYS, booking_error, none_outlives, nothing_left, plane_exact, views_agree, whole
from chaos.history import Writer, read
from chaos.injectors import InjectionError, Running
from chaos.injectors.release import cordon, cut_off, evict, rollout, scale
from chaos.observe import Observer, on_our_clock
from chaos.policies import dead_spans, our_errors
from chaos.story import JOINS, LEAVES, RESTARTS
from chaos.suites import scenarios
from chaos.targets.kube.faults import DEEDS
from chaos.targets.local import OFFERS
from chaos.testing import Tale
from chaos.verdict import Verdict, worst


def told(tale: Tale, **header: Any) -> Any:
    """Its story, with more in its header."""
    story = tale.story()
    story.header = {**story.header, **header}
    return story


def test_what_a_target_cannot_tell_is_not_applicable_and_never_a_pass() -> None:
    tale = Tale()
    tale.views(1, 3, "a")
    story = told(tale, lacks=["truth", "audit"])
    for check in (none_outlives(), booking_error(), plane_exact()):
        finding = judge(check, story)
        assert finding.verdict is Verdict.NOT_APPLICABLE
        assert finding.summary
    findings = [judge(check, story) for check in ALWAYS]
    assert sum(each.verdict is Verdict.NOT_APPLICABLE for each in findings) == 3
    assert worst([Verdict.NOT_APPLICABLE, Verdict.PASS]) is Verdict.PASS
    assert worst([Verdict.NOT_APPLICABLE, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert worst([Verdict.NOT_APPLICABLE]) is Verdict.UNKNOWN, "nothing was shown"


def test_where_all_can_be_told_all_is_judged() -> None:
    tale = Tale()
    tale.views(1, 3, "a")
    assert all(judge(check, tale.story()).verdict is not Verdict.NOT_APPLICABLE for check in ALWAYS)


def replaced() -> Tale:
    """picker-0 dies with a booking in its view; picker-2 takes its place; in the end all is empty."""
    tale = Tale()
    tale.views(1, 10, "a")
    tale.carried("a", 1, 10.5)
    tale.fault("kill", "picker-0", begun=10, healed=14)
    tale.fault(LEAVES, "picker-0", begun=10, healed=10.2)
    tale.fault(JOINS, "picker-2", begun=10.3, healed=14)
    for number in range(160):
        for replica in ("picker-1", "picker-2"):
            tale.view(replica, 15 + number / 4)
    tale.add(10.4, "run", "members", "info", replicas=["picker-1"])
    tale.add(14.1, "run", "members", "info", replicas=["picker-1", "picker-2"])
    return tale


def test_a_replica_that_left_owes_nothing_and_one_that_joined_is_asked() -> None:
    story = replaced().story()
    assert story.members == ["picker-1", "picker-2"]
    assert story.replicas == ["picker-0", "picker-1", "picker-2"]
    assert judge(nothing_left(), story).verdict is Verdict.PASS
    assert judge(views_agree(), story).verdict is Verdict.PASS
    assert our_errors(story).after == 0


def test_a_replica_that_joined_and_shows_no_view_is_missed() -> None:
    tale = replaced()
    tale.add(50, "run", "members", "info", replicas=["picker-1", "picker-2", "picker-3"])
    assert judge(nothing_left(), tale.story()).verdict is Verdict.UNKNOWN
    assert judge(views_agree(), tale.story()).verdict is Verdict.UNKNOWN


def test_a_pod_is_dead_before_it_joined_and_after_it_left() -> None:
    story = replaced().story()
    assert (10, 60.0) in dead_spans(story, "picker-0")
    assert dead_spans(story, "picker-2") == [(0.0, 14)]


def test_a_response_that_a_replicas_death_cut_is_excused_by_the_replicas_own_name() -> None:
    tale = Tale(replicas=("llama-epp-1", "llama-epp-2"))
    tale.status("llama-epp-1", 1, hold="response")
    tale.call(1, sent=2, ended=5.1, outcome="cut", booking="a", status=200)
    tale.call(2, sent=2, ended=5.1)
    tale.views(2.5, 4, "a", owner="llama-epp-1")
    tale.fault("kill", "llama-epp-1", begun=5, healed=9)
    assert judge(whole(), tale.story()).verdict is Verdict.PASS


def test_scenarios_need_what_some_target_offers() -> None:
    for spec in scenarios():
        assert {*spec.needs} <= OFFERS or {*spec.needs} <= DEEDS.keys(), spec.name
    both = [spec.name for spec in scenarios() if {*spec.needs} <= OFFERS & DEEDS.keys()]
    assert both == ["replica_killed_in_a_burst", "rolling_restart_under_load"]
    alone = [spec for spec in scenarios("release") if not {*spec.needs} <= OFFERS]
    assert {each for spec in alone for each in spec.needs} == {
        "rollout",
        "scale",
        "evict",
        "cordon",
        "cut-off",
    }


@pytest.mark.parametrize(
    "injection", [evict("p"), rollout(), scale(1), cordon("p"), cut_off("p")], ids=lambda i: i.kind
)
def test_a_fault_of_a_release_is_refused_on_loopback(injection: Any) -> None:
    running: Running = None  # type: ignore[assignment]
    with pytest.raises(InjectionError, match="--target kube"):
        injection.into(running)
    assert injection.describe()


def test_times_of_an_engine_are_brought_to_our_clock() -> None:
    page = {
        "born": 70.0,
        "now": 1100.0,
        "carried": [{"id": "a", "booking": "b", "arrived": 1090.0}],
        "ended": [{"number": 1, "name": "c", "booking": "d", "arrived": 1050.0, "ended": 1060.0}],
    }
    shown = on_our_clock(page, 1000.0)
    assert shown["carried"][0]["arrived"] == 90.0
    assert (shown["ended"][0]["arrived"], shown["ended"][0]["ended"]) == (50.0, 60.0)
    assert shown["born"] == 70.0, "it names a life"


async def test_replicas_are_looked_at_as_they_come_and_go_with_what_their_pages_ask_for(
    tmp_path: Path,
) -> None:
    asked: list[tuple[int, str | None]] = []

    async def page(request: web.Request) -> web.Response:
        asked.append((request.url.port or 0, request.headers.get("Authorization")))
        return web.json_response({"version": {"epoch": 1, "number": 1}, "sums": {}, "bookings": []})

    app = web.Application()
    app.router.add_get("/{page}", page)
    runner = web.AppRunner(app)
    await runner.setup()
    ports = []
    for _ in range(2):
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.append(runner.addresses[-1][1])
    there = {"one": f"127.0.0.1:{ports[0]}"}
    with Writer(tmp_path / "h.jsonl") as history:
        async with aiohttp.ClientSession() as http:
            observer = Observer(history, http, there, {}, 0.02, headers={"Authorization": "Bearer x"})
            looking = asyncio.create_task(observer.run())
            async with asyncio.timeout(10):
                while not asked:  # noqa: ASYNC110 - what is waited for has no event of its own
                    await asyncio.sleep(0.01)
                there["two"] = f"127.0.0.1:{ports[1]}"
                del there["one"]
                while ports[1] not in {port for port, _ in asked}:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    await runner.cleanup()
    assert {token for _, token in asked} == {"Bearer x"}
    records = list(read(tmp_path / "h.jsonl"))
    assert [each.value["replicas"] for each in records if each.f == "members"] == [["two"]]
    assert {each.process for each in records if each.f == "view"} == {"one", "two"}


def test_a_history_without_changes_of_members_has_those_of_its_beginning() -> None:
    assert list(Tale(replicas=("a", "b")).story().members) == ["a", "b"]


def test_a_replica_that_ended_by_itself_fails_the_run() -> None:
    tale = Tale()
    assert judge(KeptRunning(), tale.story()).verdict is Verdict.PASS
    tale.fault(RESTARTS, "picker-0", begun=3, healed=5)
    finding = judge(KeptRunning(), tale.story())
    assert finding.verdict is Verdict.FAIL
    assert "picker-0 at 3.00 s" in finding.evidence[0]
