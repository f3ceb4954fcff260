"""Reading of metrics pages: names old and new, ranks, sleep, and pages that are odd, broken or hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.samples import Sample

from picker.core.load import Report
from picker.workers import reading as module
from picker.workers.reading import Reader, Reading, Unreadable

OLD = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="demo-8b"} 3.0
vllm:num_requests_waiting{engine="0",model_name="demo-8b"} 1.0
vllm:gpu_cache_usage_perc{engine="0",model_name="demo-8b"} 0.41
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="demo-8b"} 51200.0
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="demo-8b"} 12800.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="27000",sliding_window="None"} 1.0
"""

NEW = """\
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="demo-8b"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="demo-8b"} 6.4929219e+07
vllm:prefix_cache_queries_created{engine="0",model_name="demo-8b"} 1.79e+09
vllm:prefix_cache_hits_total{engine="0",model_name="demo-8b"} 4.40416e+07
"""

RANKS = """\
vllm:num_requests_running{engine="0",model_name="demo-8b"} 3.0
vllm:num_requests_running{engine="1",model_name="demo-8b"} 0.0
vllm:num_requests_waiting{engine="0",model_name="demo-8b"} 2.0
vllm:num_requests_waiting{engine="1",model_name="demo-8b"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="demo-8b",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="demo-8b",reason="deferred"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="demo-8b"} 0.41
vllm:kv_cache_usage_perc{engine="1",model_name="demo-8b"} 0.0
vllm:engine_sleep_state{engine="0",model_name="demo-8b",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="1",model_name="demo-8b",sleep_state="awake"} 0.0
vllm:engine_sleep_state{engine="1",model_name="demo-8b",sleep_state="weights_offloaded"} 1.0
vllm:engine_sleep_state{engine="1",model_name="demo-8b",sleep_state="discard_all"} 0.0
vllm:cache_config_info{block_size="832",engine="0",kv_cache_size_tokens="619479",num_gpu_blocks="745"} 1.0
vllm:lora_requests_info{max_lora="2",running_lora_adapters="sql-a,sql-b",waiting_lora_adapters=""} 1.79e+09
vllm:lora_requests_info{max_lora="2",running_lora_adapters="sql-a",waiting_lora_adapters="late"} 1.790000001e+09
"""


def reports(page: str, usage_metric: str = "") -> dict[int, Report]:
    reading = Reader(usage_metric).read(page.encode(), begun=1.0, ended=1.5)
    assert isinstance(reading, Reading), reading
    return dict(reading.reports)


def faults(page: str) -> int:
    reading = Reader().read(page.encode(), begun=1.0, ended=1.5)
    assert isinstance(reading, Reading), reading
    return reading.faults


def test_a_page_in_old_names_is_read() -> None:
    assert reports(OLD) == {
        0: Report(
            begun=1.0, ended=1.5, running=3, waiting=1, kv_usage=0.41, total_blocks=27000, block_size=16,
            prefix_queries=51200.0, prefix_hits=12800.0,
        )
    }  # fmt: skip


def test_where_old_and_new_names_stand_together_the_new_ones_count_and_nothing_is_added_up() -> None:
    said = reports(OLD + NEW)[0]
    assert said.kv_usage == 0.5
    assert (said.prefix_queries, said.prefix_hits) == (64929219.0, 44041600.0)
    assert (said.running, said.waiting) == (3, 1)


def test_each_rank_of_one_process_has_its_own_report() -> None:
    both = reports(RANKS)
    assert both[0].requests == 5
    assert (both[0].waiting_capacity, both[0].waiting_deferred) == (1, 1)
    assert (both[0].total_tokens, both[0].total_blocks, both[0].block_size) == (619479, 745, 832)
    assert both[1].requests == 0
    assert both[1].waiting_capacity is None
    assert both[1].total_blocks is None


def test_sleep_of_one_rank_is_seen_and_not_spread_to_the_other() -> None:
    both = reports(RANKS)
    assert both[0].routable
    assert not both[1].routable


@pytest.mark.parametrize("state", ["weights_offloaded", "discard_all"])
def test_either_level_of_sleep_counts_without_the_awake_row(state: str) -> None:
    assert reports(OLD + f'vllm:engine_sleep_state{{engine="0",sleep_state="{state}"}} 1.0\n')[0].asleep


def test_of_stale_lora_rows_the_youngest_counts() -> None:
    assert reports(RANKS)[0].loras == frozenset({"sql-a", "late"})
    assert reports(RANKS)[0].max_loras == 2
    assert reports(OLD)[0].loras is None


def test_a_page_without_engine_labels_is_rank_zero() -> None:
    page = 'vllm:num_requests_running{model_name="m"} 2\nvllm:kv_cache_usage_perc 0.25\n'
    assert reports(page)[0].running == 2
    assert reports(page)[0].kv_usage == 0.25


def test_a_line_without_a_rank_speaks_for_all_ranks() -> None:
    page = RANKS.replace('engine="0",kv_cache', "kv_cache").replace('block_size="832",', 'block_size="64",')
    assert {said.block_size for said in reports(page).values()} == {64}


def test_waiting_by_reason_stands_in_for_the_total() -> None:
    page = "\n".join(line for line in RANKS.splitlines() if "requests_waiting{" not in line)
    assert reports(page)[0].waiting == 2


def test_the_usage_may_have_another_name_and_then_only_that_counts() -> None:
    page = OLD + 'my_usage{engine="0"} 0.9\nmy_usage_more{engine="0"} 0.1\n'
    assert reports(page, "my_usage")[0].kv_usage == 0.9
    assert reports(OLD, "my_usage")[0].kv_usage is None


def test_label_order_spaces_and_escapes_do_not_matter() -> None:
    page = 'vllm:num_requests_running{model_name="a,b=\\"c\\" d}\\\\",engine="2",} 7\r\n'
    page += 'vllm:num_requests_waiting {engine="2"} 1\n'
    assert reports(page)[2].running == 7
    assert reports(page)[2].waiting == 1


def test_rows_of_one_rank_are_never_added_up() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="0",tp_rank="{n}"}} {n}\n' for n in range(4))
    assert reports(page)[0].running == 3


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e400"])
def test_a_value_that_makes_no_sense_is_left_out_and_counted(value: str) -> None:
    page = OLD + f'vllm:kv_cache_usage_perc{{engine="0"}} {value}\n'
    assert reports(page)[0].kv_usage == 0.41
    assert faults(page) == 1


def test_a_usage_that_is_no_fraction_is_left_out() -> None:
    assert reports(OLD.replace("0.41", "41"))[0].kv_usage is None
    assert reports(OLD.replace("0.41", "1.0000001"))[0].kv_usage == 1.0


def test_a_broken_line_does_not_cost_the_others() -> None:
    page = OLD + 'vllm:num_requests_waiting{engine="0 17\nvllm:kv_cache_usage_perc{engine=0} x\n'
    assert reports(page)[0].running == 3
    assert faults(page) >= 1


@pytest.mark.parametrize("rank", ["x", "-1", "99999", "1e3", "٣"])
def test_a_rank_that_makes_no_sense_is_counted_and_ignored(rank: str) -> None:
    page = OLD + f'vllm:num_requests_running{{engine="{rank}"}} 99\n'
    assert set(reports(page)) == {0}
    assert faults(page) == 1


def test_info_labels_that_say_none_are_missing_values() -> None:
    said = reports(OLD.replace('"27000"', '"None"').replace('block_size="16"', 'block_size="1e3"'))[0]
    assert (said.total_blocks, said.block_size) == (None, None)


@pytest.mark.parametrize(
    "page", ["", "<html>404</html>", "[]", "\n\n\n", "go_goroutines 17\n", "\x00\xff" * 99]
)
def test_a_page_of_something_else_is_a_value_that_says_so(page: str) -> None:
    said = Reader().read(page.encode("latin-1"), begun=0, ended=0)
    assert isinstance(said, Unreadable)
    assert "vllm:num_requests_running" in said.reason


def test_lines_and_their_number_are_bounded() -> None:
    long = f'vllm:num_requests_waiting{{engine="0",x="{"y" * 70_000}"}} 5\n'
    assert reports(OLD + long)[0].waiting == 1
    assert faults(OLD + long) == 1
    many = "".join(f'vllm:num_requests_running{{engine="{n}"}} 1\n' for n in range(6000))
    assert len(reports(many)) <= 4096
    assert faults(many) > 0


def test_a_large_page_of_other_metrics_is_read_by_its_few_wanted_lines() -> None:
    bulk = "".join(f'vllm:e2e_request_latency_seconds_bucket{{le="{n}"}} {n}\n' for n in range(20_000))
    assert reports(bulk + OLD + bulk) == reports(OLD)


@given(st.binary(max_size=400))
def test_no_page_raises(noise: bytes) -> None:
    Reader().read(noise, begun=0, ended=0)
    whole = Reader().read(OLD.encode() + b"vllm:num_requests_waiting{" + noise, begun=0, ended=0)
    assert isinstance(whole, Reading)
    assert whole.reports[0].running == 3


@given(
    st.lists(st.sampled_from((OLD + NEW + RANKS).splitlines()), max_size=30),
    st.randoms(use_true_random=False),
)
def test_lines_may_come_in_any_order(lines: list[str], rng: object) -> None:
    first = Reader().read("\n".join(lines).encode(), begun=0, ended=0)
    shuffled = list(lines)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    again = Reader().read("\n".join(shuffled).encode(), begun=0, ended=0)
    assert type(first) is type(again)
    if isinstance(first, Reading) and isinstance(again, Reading):
        plain = [
            {rank: (r.running, r.waiting, r.kv_usage, r.asleep) for rank, r in x.reports.items()}
            for x in (first, again)
        ]
        assert plain[0] == plain[1]


def test_a_page_seen_before_is_read_anew() -> None:
    for _ in range(2):
        for number in ("0", "3", "3.5", "7e+02", "7e-1", "1e3", " 4", "+5", "6 1700000000000"):
            page = f'vllm:num_requests_running{{engine="0",model_name="again"}} {number}\n'
            assert reports(page)[0].running == int(float(number.split()[0])), number
            assert faults(page) == 0


def test_a_line_that_is_broken_is_a_fault_each_time() -> None:
    page = OLD + 'vllm:num_requests_waiting{engine="0",model_name="demo-8b" 1.0\n'
    page += 'vllm:num_requests_waiting{engine="0",model_name=again} 1\n'
    assert faults(page) == faults(page) == 2


def test_remembered_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, tuple[Sample, ...]] = {}
    monkeypatch.setattr(module, "_known", known)
    monkeypatch.setattr(module, "KNOWN_HEADS", 4)
    for number in range(50):
        reports(f'vllm:num_requests_running{{engine="0",model_name="m{number}"}} 1\n')
        reports(f'vllm:num_requests_running{{engine="0",model_name="{"m" * 2_000}{number}"}} 1\n')
        assert len(known) <= 4
    assert known
    assert max(map(len, known)) <= module.KNOWN_HEAD + 1


# --- one page after the other

PAGES = (OLD, NEW, OLD + NEW, RANKS, "", "[]", OLD.replace("3.0", "4.0"), OLD.replace("3.0", "many"))


@given(st.lists(st.sampled_from(PAGES), max_size=8))
def test_a_page_is_read_the_same_whatever_was_read_before_it(pages: list[str]) -> None:
    reader = Reader()
    for at, page in enumerate(pages):
        text = page.encode()
        assert reader.read(text, begun=at, ended=at + 0.5) == Reader().read(text, begun=at, ended=at + 0.5)


def test_what_is_kept_of_a_page_is_bounded() -> None:
    reader = Reader()
    page = OLD.replace("demo-8b", "x" * module.REMEMBERED).encode()
    assert isinstance(reader.read(page, begun=0.0, ended=0.5), Reading)
    assert (reader._lines, reader._reading) == ([], None)
