"""The bench of decisions on a real replica, as small as it gets: that it measures, not what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, get_args

import pytest

from picker.bench.decide.beside import Other
from picker.bench.decide.drive import Drive, drive_server
from picker.bench.decide.extent import QUICK, SMALL, Cell, Part
from picker.bench.decide.gateway import Gateway
from picker.bench.decide.page import performance_page
from picker.bench.decide.run import run
from picker.bench.decide.script import Mode
from picker.bench.decide.stand import Kind, hashes_of, standing
from picker.bench.fleet import Fleet, FleetError

TINY = replace(QUICK, seconds=0.3, rates={SMALL: 100.0})


async def measured(part: Part) -> dict[str, Any]:
    return (await run(replace(TINY, parts=(part,)))).as_json()


async def test_a_row_tells_what_a_decision_costs_a_real_replica() -> None:
    found = await measured("rows")
    (row,) = found["rows"]
    assert {"target", "workers", "body_bytes", "cpu_us", "plane_cpu_us", "per_s", "p50_ms", "p99_ms"} <= set(
        row
    )
    assert (row["transport"], row["plane"], row["failed"]) == ("native", "off", 0)
    assert row["decisions"] > 0 < row["cpu_us"]
    assert row["rss_mb"] > 20
    assert min(found["calibration"].values()) > 0
    assert "# Performance" in performance_page(found)


async def test_every_event_that_is_published_is_applied_beside_the_decisions() -> None:
    found = await measured("events")
    assert found["events"]["pairs"][0]["applied"] == found["events"]["pairs"][0]["published"] > 100
    assert found["events"]["lost"] == 0
    assert found["events"]["ratio"] > 0


async def test_streams_are_held_while_their_responses_go_on() -> None:
    found = await measured("held")
    assert found["held"]["streams"] == TINY.held
    assert found["held"]["bytes_each"] < 100_000


async def test_an_envoy_takes_more_time_with_its_filter_than_without() -> None:
    found = await measured("filter")
    with_filter, without = found["filter"]["with_filter"], found["filter"]["without"]
    assert with_filter["envoy_cpu_us"] > without["envoy_cpu_us"] > 0
    assert with_filter["failed"] == without["failed"] == 0


async def test_the_parts_of_a_decision_add_up_to_all_of_it() -> None:
    (one,) = (await measured("profile"))["profile"]
    assert sum(one["parts_us"].values()) == pytest.approx(one["cpu_us"], rel=0.02)
    assert one["looks"] > 5


async def test_another_server_gets_the_same_load_by_turns_and_its_cost_is_told_as_a_ratio() -> None:
    cells = (Cell(Kind(workers=2), (SMALL,)),)
    async with standing(Kind(transport="grpcio", workers=2)) as other:
        (address,), (pid,) = other.addresses, other.pids()
        found = (await run(replace(TINY, cells=cells), against=Other(address, pid))).numbers
    ours, theirs = found["against"]["rows"]
    assert (ours["target"], theirs["target"]) == ("picker", address)
    assert ours["failed"] == theirs["failed"] == 0
    (ratio,) = found["against"]["theirs_to_ours"]
    assert ratio["cpu_us"] > 1.5
    assert ratio["p50_ms"] > 0


@pytest.mark.parametrize("mode", get_args(Mode))
async def test_bodies_larger_than_a_window_pass_in_every_mode_and_on_both_planes_and_transports(
    mode: Mode,
) -> None:
    kind = Kind(workers=2, transport="grpcio" if mode == "buffered" else "native", plane="eventual")
    with Fleet(1) as gate:
        async with standing(kind) as stand:
            drive = Drive(
                stand.addresses,
                size=300 * 1024,
                prompts=2,
                mode=mode,
                streams=2,
                seconds=0.5,
                watched=stand.watched(),
            )
            (driven,) = await gate.together(drive_server, [drive])
    assert driven.done > 0 == driven.failed + driven.refused
    assert set(driven.cpu_ns) == {"picker-0", "plane"}
    assert min(driven.cpu_ns.values()) > 0


async def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(OSError, match="Connect call failed"):
        await Gateway.open("127.0.0.1:1")
    with Fleet(1) as gate, pytest.raises(FleetError, match="Connect"):
        await gate.together(drive_server, [Drive(["127.0.0.1:1"])])


async def test_a_server_that_goes_away_fails_the_streams_it_had_and_hangs_nobody() -> None:
    async def goes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\x04\0\0\0\0\0")
        await reader.read(200)
        writer.close()

    server = await asyncio.start_server(goes, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with Fleet(1) as gate:
        (driven,) = await gate.together(
            drive_server, [Drive([f"127.0.0.1:{port}"], seconds=0.2, warm=0.0, prompts=0, rate=50)]
        )
    server.close()
    assert driven.failed > 0
    assert driven.latencies == []


async def test_hashes_of_the_prompts_are_those_that_a_replica_matches() -> None:
    first, second = await hashes_of(SMALL, 2, seed=1)
    assert first[0] == second[0]
    assert first[-1] != second[-1]
