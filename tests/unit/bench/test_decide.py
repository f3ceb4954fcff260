"""What the bench of decisions makes of what it measured, and what its gateway says."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from picker.bench.decide.drive import Driven
from picker.bench.decide.engines import end_of_body
from picker.bench.decide.events import pair_of
from picker.bench.decide.extent import (
    QUICK,
    SIZES,
    SMALL,
    USUAL_CELLS,
    WORKERS,
    Extent,
    full_cells,
    prompts_of,
)
from picker.bench.decide.held_to import budgets
from picker.bench.decide.page import performance_page
from picker.bench.decide.parts import OTHER, PARTS, part_of, shares
from picker.bench.decide.rows import Pair, cost, find, latency, middle, pair_ratio, ratios, shown
from picker.bench.decide.sampled import LOOP, WAITING, innermost
from picker.bench.decide.script import ID, PIECE, Script, fresh, prompts, script
from picker.bench.decide.stand import PLANES, TRANSPORTS, Kind
from picker.bench.decide.tables import filter_rows, tables_of
from picker.serving.http2 import frames
from picker.serving.wire.extproc_pb2 import ProcessingRequest

MS = 1_000_000


def messages(data: bytes) -> list[ProcessingRequest]:
    found = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        found.append(ProcessingRequest.FromString(data[5 : 5 + size]))
        data = data[5 + size :]
    return found


def header(message: ProcessingRequest, name: str) -> bytes:
    return next(one.raw_value for one in message.request_headers.headers.headers if one.key == name)


# -- what the gateway says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_prompts_have_their_size_share_a_beginning_and_differ(size: int) -> None:
    found = prompts(size, 4, seed=1)
    assert len(set(found)) == 4
    assert all(abs(len(body) - size) <= 8 for body in found)
    texts = [json.loads(body)["messages"] for body in found]
    assert len({one[0]["content"] for one in texts}) == 1
    assert len({one[1]["content"][:20] for one in texts}) == 4
    assert found == prompts(size, 4, seed=1)
    assert found != prompts(size, 4, seed=2)


def test_prompts_that_are_new_begin_differently() -> None:
    one, other = (json.loads(fresh(SMALL, number, seed=1))["messages"][1]["content"] for number in (1, 2))
    assert one[:20] != other[:20]


def test_every_stream_has_a_request_id_of_its_own_and_the_same_length() -> None:
    said = script(prompts(SMALL, 1, seed=1)[0], "full_duplex_streamed")
    openings = [said.opening(number) for number in (0, 1, 2**32 - 1)]
    ids = [header(messages(opening)[0], "x-request-id") for opening in openings]
    assert len(set(ids)) == 3
    assert {len(one) for one in ids} == {len(ID)}
    assert {len(opening) for opening in openings} == {len(said.headers)}


def test_a_body_comes_in_pieces_where_it_is_streamed_and_in_one_where_it_is_buffered() -> None:
    body = prompts(3 * PIECE, 1, seed=1)[0]
    streamed, whole = (
        [one.request_body for one in messages(script(body, mode).body)]
        for mode in ("full_duplex_streamed", "buffered")
    )
    assert b"".join(one.body for one in streamed) == body == whole[0].body
    assert [one.end_of_stream for one in streamed] == [False] * (len(streamed) - 1) + [True]
    assert len(whole) == 1 < len(streamed)
    first = messages(script(body, "buffered").headers)[0]
    assert first.protocol_config.request_body_mode == 2
    assert header(first, "content-length") == str(len(body)).encode()


def test_a_script_is_small_enough_to_be_sent_at_once() -> None:
    said: Script = script(prompts(SMALL, 1, seed=1)[0], "full_duplex_streamed")
    assert len(said.headers) + len(said.body) < frames.DEFAULT_WINDOW


@pytest.mark.parametrize(
    ("sent", "end"),
    [
        (b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n", 34),
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab", -1),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET", 41),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", -1),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 60),
    ],
)
def test_an_engine_answers_a_request_that_is_there_to_its_end(sent: bytes, end: int) -> None:
    assert end_of_body(sent, sent.index(b"\r\n\r\n") + 4) == end


# -- what is measured ------------------------------------------------------------------------------------------------


def test_the_usual_extent_has_every_budget_and_the_full_one_every_kind() -> None:
    kinds = [(cell.kind, size) for cell in USUAL_CELLS for size in cell.sizes if not cell.fresh]
    assert (Kind(), 300 * 1024) in kinds
    assert {kind.workers for kind, _ in kinds} == set(WORKERS)
    assert {kind.transport for kind, _ in kinds} == set(TRANSPORTS)
    every = {
        (one.kind.transport, one.kind.plane, one.kind.workers) for one in full_cells() if len(one.sizes) == 3
    }
    assert every == {(t, p, w) for t in TRANSPORTS for p in PLANES for w in WORKERS}
    assert any(cell.fresh for cell in full_cells())
    assert len(full_cells()) == len({(repr(one.kind), one.fresh) for one in full_cells()})


def test_a_rate_and_prompts_are_known_for_every_size() -> None:
    extent = Extent(USUAL_CELLS)
    assert [extent.rate(size) for size in (10, 1024, 8192, 32_768, 10**6)] == [500, 500, 500, 200, 20]
    assert [prompts_of(size) for size in SIZES] == [32, 12, 4]
    assert Extent((), rates={0: 7.0}).rate(10**6) == 7.0
    assert QUICK.whole == "quick"


def test_many_workers_are_scraped_less_often() -> None:
    assert Kind(workers=64).scrape_seconds == 0.5
    assert Kind(workers=1_000).scrape_seconds == 5.0
    assert Kind(workers=1_000).variables()["PICKER_REPORT_STALE_SECONDS"] == "23"
    assert [Kind(plane=plane).variables()["PICKER_SYNC"] for plane in PLANES] == [
        "isolated", "eventual", "atomic", "eventual",
    ]  # fmt: skip


# -- what is made of it ----------------------------------------------------------------------------------------------

DRIVEN = Driven(
    seconds=2.0, done=1_000, failed=0, refused=0, latencies=[0.001] * 98 + [0.004, 0.009],
    cpu_ns={"picker-0": 100 * MS, "picker-1": 200 * MS, "plane": 50 * MS},
)  # fmt: skip


def test_processor_time_is_shared_among_decisions_and_the_planes_stands_apart() -> None:
    found = cost(DRIVEN, idle_share=0.01)
    assert (found.replica_us, found.plane_us, found.per_s) == (300.0, 50.0, 500.0)
    assert found.net_us == pytest.approx(300 - 2 * 0.01 * 2e6 / 1_000)
    assert cost(DRIVEN, idle_share=5.0).net_us == 0.0
    assert shown(found)["plane_cpu_us"] == 50.0
    assert cost(Driven(2.0, 0, 0, 0, [], {"picker-0": MS})).replica_us == 1_000.0


def test_latency_is_in_milliseconds_and_none_of_nothing() -> None:
    assert latency(DRIVEN) == {"p50_ms": 1.0, "p99_ms": 4.0}
    assert latency(Driven(2.0, 0, 3, 0, [], {})) == {"p50_ms": None, "p99_ms": None}


def test_rounds_are_told_by_their_medians_without_what_was_not_measured() -> None:
    assert middle([{"a": 1.0, "b": None}, {"a": 9.0, "b": 4.0}, {"a": 2.0, "b": None}]) == {
        "a": 2.0,
        "b": 4.0,
    }
    assert middle([{"a": None}]) == {"a": None}
    assert middle([]) == {}


def test_ratios_are_theirs_to_ours_and_leave_out_what_one_side_lacks() -> None:
    ours = {"cpu_us": 100.0, "per_s": 2_000.0, "p50_ms": 2.0, "p99_ms": None, "rss_mb": 100.0}
    theirs = {"cpu_us": 550.0, "per_s": 1_000.0, "p50_ms": 3.0, "p99_ms": 9.0, "rss_mb": None}
    assert ratios(ours, theirs) == {
        "cpu_us": 5.5,
        "per_s": 0.5,
        "p50_ms": 1.5,
        "p99_ms": None,
        "rss_mb": None,
    }


def test_pairs_are_told_by_the_median_of_their_ratios() -> None:
    pairs = [Pair(10.0, 5.0), Pair(9.0, 3.0), Pair(100.0, 1.0)]
    assert pair_ratio(pairs) == 3.0
    assert Pair(1.0, 0.0).ratio == float("inf") == pair_ratio([])
    assert pair_of({"p99_ms": 6.0}, {"p99_ms": 2.0}) == Pair(6.0, 2.0)
    assert pair_of({"p99_ms": None}, {"p99_ms": 2.0}) is None is pair_of({"p99_ms": 6.0}, {"p99_ms": None})


# -- where the time goes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("picker.serving.http2.connection", "transport: HTTP/2, gRPC, sockets"),
        ("picker.serving.replies", "ext_proc out: the answer"),
        ("picker.serving.exchange", "ext_proc in: messages and bodies"),
        ("picker.core.index", "matching"),
        ("picker.core.blocks", "hashing"),
        ("picker.core.choose", "pricing and choosing"),
        ("stateplane.view", "booking"),
        (LOOP, "event loop"),
        (WAITING, "request: JSON, chat template, tokens"),
        ("picker.events.picks", "matching"),
        ("picker.events.subscriber", "KV events"),
        ("picker.heap", OTHER),
        ("picker.coreless", OTHER),
    ],
)
def test_a_module_belongs_to_the_part_with_the_longest_name_that_fits(module: str, part: str) -> None:
    assert part_of(module) == part


def test_no_module_is_claimed_twice_and_shares_make_one() -> None:
    prefixes = [prefix for _, names in PARTS for prefix in names]
    assert len(prefixes) == len(set(prefixes))
    found = shares({"picker.core.index": 3, "picker.core.load": 1, "picker.heap": 4})
    assert found == {"matching": 0.375, "pricing and choosing": 0.125, OTHER: 0.5}


def test_the_innermost_module_of_ours_is_looked_for() -> None:
    code = "import sys\ndef outer(inner): return inner()\n"
    ours: dict[str, Any] = {"__name__": "picker.core.index"}
    theirs: dict[str, Any] = {"__name__": "json.decoder"}
    exec(code, ours)
    exec("import sys\ndef look(): return sys._getframe()\n", theirs)
    assert innermost(ours["outer"](theirs["look"])) == "picker.core.index"
    assert innermost(None) == LOOP
    assert innermost(sys._getframe()) == LOOP

    def select() -> str:
        return innermost(sys._getframe())

    assert select() == WAITING


# -- tables and the page ---------------------------------------------------------------------------------------------


def row(**more: Any) -> dict[str, Any]:
    return {
        "target": "picker", "transport": "native", "plane": "off", "workers": 64, "replicas": 1, "index_blocks": 0,
        "body_bytes": 1024, "prompts": "known", "mode": "full_duplex_streamed", "streams": 16, "cpu_us": 150.0,
        "net_cpu_us": 140.0, "plane_cpu_us": 0.0, "per_s": 4_000.0, "p50_ms": 1.0, "p99_ms": 3.0, "rate": 500.0,
        "rss_mb": 100.0, "failed": 0, "calibration_ns": 80.0,
    } | more  # fmt: skip


EVENTS = {
    "requests_per_s": 500.0, "events_per_s": 5_000.0, "blocks_per_event": 8, "workers": 64, "plane": "off",
    "transport": "native", "ratio": 1.5, "p99_ms": 4.5, "quiet_p99_ms": 3.0, "applied_per_s": 4_990.0, "lost": 0,
    "pairs": [{"pair": 1, "p50_ms": 1.0, "p99_ms": 4.5, "quiet_p50_ms": 0.9, "quiet_p99_ms": 3.0, "ratio": 1.5}],
}  # fmt: skip
HELD = {
    "transport": "native", "workers": 8, "streams": 10_000, "bytes_each": 1_400.0, "rss_mb": 120.0,
    "idle_cpu_pct": 1.5, "idle_cpu_pct_without": 1.2, "opened_per_s": 2_000.0,
}  # fmt: skip
FILTER = {
    "transport": "native", "clients": 16, "rounds": 3,
    "without": {"p50_ms": 1.0, "p99_ms": 2.0, "envoy_cpu_us": 40.0, "picker_cpu_us": 1.0, "per_s": 9_000.0},
    "with_filter": {"p50_ms": 4.0, "p99_ms": 9.0, "envoy_cpu_us": 240.0, "picker_cpu_us": 150.0, "per_s": 2_000.0},
}  # fmt: skip
PROFILE = [
    {"body_bytes": 1024, "looks": 900, "cpu_us": 150.0, "parts_us": {"matching": 10.0, "booking": 140.0}},
    {"body_bytes": 32_768, "looks": 800, "cpu_us": 400.0, "parts_us": {"matching": 400.0}},
]
NUMBERS: dict[str, Any] = {
    "calibration": {"begin_ns": 80.0, "end_ns": 81.0},
    "rows": [
        row(), row(body_bytes=32_768, cpu_us=450.0), row(body_bytes=307_200, cpu_us=2_000.0),
        row(transport="grpcio", cpu_us=900.0), row(plane="eventual", cpu_us=240.0, plane_cpu_us=60.0),
        row(plane="eventual", replicas=4, cpu_us=320.0), row(workers=8, cpu_us=120.0), row(workers=1000, cpu_us=260.0),
        row(index_blocks=1_000_000, cpu_us=155.0), row(prompts="new", cpu_us=400.0),
        row(streams=None, rate=1_000.0),
    ],
    "events": EVENTS, "held": HELD, "filter": FILTER, "profile": PROFILE,
}  # fmt: skip


def test_every_budget_is_told_and_kept_or_not_by_its_own_row() -> None:
    found = {one.name: one for one in budgets(NUMBERS)}
    assert found["CPU of a decision, 1 KB, 64 workers, plane off"].measured == 150.0
    assert found["CPU of a decision, 1 KB, 64 workers, plane eventual"].measured == 240.0
    assert found["CPU of a decision, 32 KB, 64 workers, plane off"].measured == 450.0
    assert found["CPU of grpcio to native, 1 KB"].measured == 6.0
    assert len(found) == 10
    assert all(one.passed for one in found.values())
    worse = NUMBERS | {
        "rows": [row(cpu_us=171.0, failed=1), row(transport="grpcio", cpu_us=800.0)],
        "events": EVENTS | {"ratio": 2.6, "applied_per_s": 4_000.0, "lost": 1},
        "held": HELD | {"bytes_each": 20_481.0, "idle_cpu_pct": 3.1},
    }
    assert not any(one.passed for one in budgets(worse))
    assert budgets({"rows": []}) == []
    (lacking,) = budgets({"rows": [], "not_measured": {"held": "TimeoutError()"}})
    assert (lacking.name, lacking.passed) == ("parts that could not be measured (held)", False)


def test_other_modes_and_numbers_of_streams_are_held_to_nothing() -> None:
    found = [
        one.name for one in budgets({"rows": [row(mode="buffered", cpu_us=1e6), row(streams=64, cpu_us=1e6)]})
    ]
    assert found == ["streams that failed or were refused"]


def test_tables_show_everything_that_was_measured_and_nothing_else() -> None:
    titles = [title for title, _, _ in tables_of(NUMBERS)]
    assert len(titles) == len(set(titles)) == 6
    assert tables_of({"rows": []}) == []
    other = {"rows": [row(target="127.0.0.1:9")], "theirs_to_ours": [{"body_bytes": 1024, "cpu_us": 5.5}]}
    (_, _, rows), (title, _, told) = tables_of({"rows": [], "against": other})
    assert rows[0]["kb"] == 1
    assert (title, told[0]["cpu_us"]) == ("Theirs to ours", 5.5)


def test_what_the_filter_costs_is_the_difference() -> None:
    *_, more = filter_rows(FILTER)
    assert (more["envoy_cpu_us"], more["p50_ms"], more["per_s"]) == (200.0, 3.0, None)


def test_the_page_has_every_section_curve_and_budget() -> None:
    numbers = NUMBERS | {
        "conditions": {"cores": 2}, "budgets": [one.as_json() for one in budgets(NUMBERS)], "passed": True,
    }  # fmt: skip
    page = performance_page(numbers)
    for heading in (
        "What a decision costs", "Against the number of workers", "Against the length of the prompt",
        "Against the index", "Against the number of replicas", "Where the time goes",
        "What the gateway's own filter costs", "Beside KV events", "Streams that wait", "Budgets",
    ):  # fmt: skip
        assert f"# {heading}" in page
    assert page.count("```mermaid") == 4
    assert '["8", "64", "1,000"]' in page
    assert "bar [120, 150, 260]" in page
    assert "cores: 2" in page
    assert "None" not in page
    small = performance_page(
        numbers | {"rows": [row()], "profile": None, "filter": None, "held": None, "events": None}
    )
    assert "mermaid" not in small


def test_a_row_is_found_by_its_values() -> None:
    rows = [{"a": 1, "b": 2}, {"a": 1, "b": 3}]
    assert find(rows, a=1, b=3) == {"a": 1, "b": 3}
    assert find(rows, a=2) is None
