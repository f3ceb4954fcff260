"""What each engine's page says, version family by version family, and the traps of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.core.load import Report
from picker.workers.engines import ENGINES
from picker.workers.reading import Reader, Reading, Unreadable

PAGES = Path(__file__).parent / "pages"
NAMES = sorted(path.stem for path in PAGES.glob("*.txt"))


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text("utf-8")


def reports(text: str) -> dict[int, Report]:
    reading = Reader().read(text.encode(), begun=1.0, ended=1.5)
    assert isinstance(reading, Reading), reading
    assert reading.faults == 0
    return dict(reading.reports)


def said(running: int, waiting: int, **more: object) -> Report:
    return Report(begun=1.0, ended=1.5, running=running, waiting=waiting, **more)  # type: ignore[arg-type]


EXPECTED: dict[str, dict[int, Report]] = {
    "vllm-0.8": {
        0: said(
            3, 1, kv_usage=0.41, total_blocks=27000, block_size=16, prefix_queries=51200.0, prefix_hits=12800.0
        )
    },
    "vllm-0.10": {
        0: said(
            5, 0, kv_usage=0.52, total_blocks=27000, block_size=16, prefix_queries=1000.0, prefix_hits=400.0,
            loras=frozenset({"sql-a", "sql-b"}), max_loras=4,
        )
    },
    "vllm-0.24": {
        0: said(
            3, 2, kv_usage=0.41, total_blocks=745, block_size=832, total_tokens=619479, waiting_capacity=1,
            waiting_deferred=1, prefix_queries=64929219.0, prefix_hits=44041600.0,
            loras=frozenset({"sql-a", "sql-b"}), max_loras=2,
        ),
        1: said(
            0, 0, kv_usage=0.0, total_blocks=745, block_size=832, total_tokens=619479, waiting_capacity=0,
            waiting_deferred=0, asleep=True, loras=frozenset({"sql-a", "sql-b"}), max_loras=2,
        ),
    },
    "vllm-0.33": {
        0: said(
            12, 4, kv_usage=0.98, total_blocks=27000, block_size=16, total_tokens=432000, waiting_capacity=0,
            waiting_deferred=4, prefix_queries=2048.0, prefix_hits=1024.0,
        )
    },
    "sglang-0.4": {0: said(4, 7, kv_usage=0.28, prefix_queries=8000.0, prefix_hits=2000.0)},
    "sglang-0.5.9": {
        0: said(
            4, 8, kv_usage=0.83, total_blocks=6734, block_size=64, total_tokens=431000, waiting_capacity=7,
            waiting_deferred=1, prefix_queries=9000.0, prefix_hits=3500.0, max_loras=8,
        )
    },
    "sglang-0.5.20": {
        0: said(
            14, 9, kv_usage=0.9, total_blocks=6735, block_size=64, total_tokens=431040, waiting_capacity=6,
            waiting_deferred=3, prefix_queries=9000.0, prefix_hits=4500.0,
        ),
        1: said(
            2, 1, kv_usage=0.1, total_blocks=6735, block_size=64, total_tokens=431040, waiting_capacity=0,
            waiting_deferred=1, prefix_queries=9000.0, prefix_hits=4500.0,
        ),
    },
    "trtllm-main": {0: said(3, 1, kv_usage=0.62, total_blocks=9000, block_size=32)},
}  # fmt: skip
UNTOLD = {"trtllm-1.2"}


def test_every_page_has_its_expectation() -> None:
    assert set(NAMES) == EXPECTED.keys() | UNTOLD


@pytest.mark.parametrize("name", EXPECTED)
def test_the_page_of_each_version_family_is_read(name: str) -> None:
    assert reports(page(name)) == EXPECTED[name]


def test_an_engine_that_tells_no_load_is_told_of_with_what_to_set() -> None:
    reading = Reader().read(page("trtllm-1.2").encode(), begun=1.0, ended=1.5)
    assert isinstance(reading, Unreadable)
    assert "enable_iter_perf_stats" in reading.reason
    assert not reading.json


@pytest.mark.parametrize("name", ["sglang-0.5.9", "sglang-0.5.20"])
def test_tensor_parallel_rows_are_views_of_one_queue_and_the_fullest_counts(name: str) -> None:
    more = [line.replace('tp_rank="0"', 'tp_rank="7"') for line in page(name).splitlines()]
    assert reports("\n".join([*more, page(name)])) == EXPECTED[name]
    late = 'sglang:num_running_reqs{dp_rank="0",tp_rank="9"} 15\n' if name == "sglang-0.5.20" else ""
    late = late or 'sglang:num_running_reqs{tp_rank="9"} 15\n'
    assert reports(page(name) + late)[0].running == 15


def test_rows_of_one_priority_never_stand_for_all_where_all_are_told() -> None:
    more = 'sglang:num_running_reqs{dp_rank="0",priority="9"} 99\n'
    assert reports(more + page("sglang-0.5.20") + more) == EXPECTED["sglang-0.5.20"]


def test_a_row_without_the_priority_label_is_the_whole() -> None:
    text = 'sglang:num_running_reqs{priority="1"} 9\nsglang:num_running_reqs{tp_rank="0"} 4\n'
    assert reports(text)[0].running == 4


def test_where_an_operator_labels_every_row_with_a_priority_the_load_is_seen_all_the_same() -> None:
    text = page("sglang-0.5.9").replace('tp_rank="', 'priority="high",tp_rank="')
    assert reports(text) == EXPECTED["sglang-0.5.9"]


def test_labels_of_the_operator_are_not_taken_for_a_rank() -> None:
    for name in ("sglang-0.5.9", "trtllm-main"):
        text = page(name).replace('model_name="demo-8b"', 'model_name="demo-8b",engine="blue",zone="a,b"')
        assert reports(text) == EXPECTED[name]


def test_names_that_only_begin_like_an_engines_do_not_tell_the_engine() -> None:
    assert reports("vllm:num_requests_running_max 9\n" + page("sglang-0.4")) == EXPECTED["sglang-0.4"]


def test_the_older_name_of_a_queue_stands_in_and_is_not_added_to_the_newer() -> None:
    old = 'sglang:num_prefill_prealloc_queue_reqs{model_name="m"} 3\n'
    new = 'sglang:num_prefill_bootstrap_queue_reqs{model_name="m"} 4\n'
    base = page("sglang-0.4")
    assert reports(base + old)[0].waiting == 10
    assert reports(base + new + old)[0].waiting == 11


def test_parts_of_a_whole_are_bounded() -> None:
    text = "".join(f'sglang:cached_tokens_total{{cache_source="{n}"}} 1\n' for n in range(5000))
    reading = Reader().read((page("sglang-0.5.20") + text).encode(), begun=0, ended=0)
    assert isinstance(reading, Reading)
    assert reading.faults > 4000
    assert (reading.reports[0].prefix_hits or 0) <= 4500 + 64


def test_the_usage_name_that_is_set_counts_for_any_engine() -> None:
    for name in ("sglang-0.4", "trtllm-main"):
        text = (page(name) + "own_usage 0.75\n").encode()
        reading = Reader("own_usage").read(text, begun=0, ended=0)
        assert isinstance(reading, Reading)
        assert reading.reports[0].kv_usage == 0.75


@pytest.mark.parametrize(
    ("text", "json"), [(' [{"iter": 1}]', True), ('{"detail":"x"}', True), ("<html>", False)]
)
def test_json_is_told_apart_from_other_pages_that_are_no_metrics(text: str, json: bool) -> None:
    reading = Reader().read(text.encode(), begun=0, ended=0)
    assert isinstance(reading, Unreadable)
    assert reading.json is json
    for engine in ENGINES:
        assert engine.running in reading.reason


@pytest.mark.parametrize("name", sorted(EXPECTED))
@given(noise=st.binary(max_size=200), at=st.integers(0, 3000))
def test_noise_in_any_page_raises_nothing(name: str, noise: bytes, at: int) -> None:
    text = page(name).encode()
    Reader().read(text[:at] + noise + text[at:], begun=0, ended=0)
