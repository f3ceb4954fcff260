"""The whole bench of decisions: cost and latency, then events, held streams, the gateway's filter, the parts."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from picker.bench.budget import Result
from picker.bench.decide.beside import Other, beside
from picker.bench.decide.drive import WARM_SECONDS, Drive, drive_server
from picker.bench.decide.events import storm
from picker.bench.decide.extent import FEW, SMALL, Cell, Extent, Part, prompts_of
from picker.bench.decide.filtering import filtering
from picker.bench.decide.held import held
from picker.bench.decide.held_to import budgets
from picker.bench.decide.parts import profile
from picker.bench.decide.rows import cost, latency, shown
from picker.bench.decide.stand import POOL, Kind, Stand, hashes_of, standing
from picker.bench.decide.voices import Speech, speak
from picker.bench.fleet import Fleet, FleetError
from picker.bench.timing import calibration_ns
from picker.sim.processes import ProcessError

Say = Callable[[str], None]


async def run(extent: Extent, *, against: Other | None = None, say: Say = lambda _: None) -> Result:
    """Measure everything that is wanted. ``say`` hears what is going on."""
    calibration = {"begin_ns": round(calibration_ns(), 1)}
    numbers: dict[str, Any] = {"calibration": calibration, "rows": []}
    begun = monotonic()
    with Fleet(1) as gate, Fleet(1) as voice:
        if against is not None:
            numbers["against"] = await beside(gate, extent, against, say)
        elif "rows" in extent.parts:
            for cell in extent.cells:
                numbers["rows"] += await _cell(gate, voice, extent, cell, say)
        for part in extent.parts if against is None else ():
            if part != "rows":
                await _further(gate, voice, extent, part, numbers, say)
    calibration["end_ns"] = round(calibration_ns(), 1)
    numbers["seconds"] = round(monotonic() - begun, 1)
    return Result("decide", numbers, _conditions(extent), budgets(numbers))


async def _further(
    gate: Fleet, voice: Fleet, extent: Extent, part: Part, numbers: dict[str, Any], say: Say
) -> None:
    """One part that is no row. What did not come about in time is told as such, and costs no other part."""
    kind = extent.cells[0].kind
    plain = Kind(transport=kind.transport, workers=FEW)
    try:
        if part == "events":
            say(f"{extent.storm.events:g} KV events/s beside {extent.storm.rate:g} requests/s, and none")
            numbers[part] = await storm(gate, voice, kind, extent.storm)
        elif part == "held":
            say(f"{extent.held:,} streams held open")
            numbers[part] = await held(gate, plain, extent.held, idle_seconds=extent.held_seconds)
        elif part == "filter":
            say("requests through Envoy, with its filter and without")
            numbers[part] = await filtering(gate, plain, rounds=extent.filter_rounds, seconds=extent.seconds)
        elif part == "profile":
            say("where the time goes")
            sizes = {size: prompts_of(size) for size in extent.cells[0].sizes[:2]}
            numbers[part] = await profile(gate, kind, sizes, seconds=extent.profile_seconds)
    except (FleetError, ProcessError, OSError) as error:
        say(f"{part}: {error!r}")
        numbers.setdefault("not_measured", {})[part] = repr(error)[:500]


# -- rows ----------------------------------------------------------------------------------------------------------


async def _cell(gate: Fleet, voice: Fleet, extent: Extent, cell: Cell, say: Say) -> list[dict[str, Any]]:
    kind = cell.kind
    rows: list[dict[str, Any]] = []
    say(
        f"{kind.transport}, plane {kind.plane}, {kind.workers} workers, {kind.replicas} replicas, "
        f"{kind.index_blocks:,} blocks, {'new' if cell.fresh else 'known'} prompts"
    )
    async with standing(kind) as stand:
        await _fill(voice, stand, cell)
        idle = await stand.idle_share(max(0.5, extent.seconds / 2))
        rows.extend([await _row(gate, extent, cell, stand, size, idle) for size in cell.sizes])
        if kind == Kind() and not cell.fresh:
            rows.extend([await _open(gate, extent, stand, cell, SMALL, rate) for rate in extent.sweep])
    return rows


async def _fill(voice: Fleet, stand: Stand, cell: Cell) -> None:
    """Let workers hold the prompts, and whatever else is to be in the index."""
    told: list[Sequence[int]] = []
    if not cell.fresh:
        for size in cell.sizes:
            told += await hashes_of(size, prompts_of(size), seed=1)
    speech = Speech(
        stand.nats_url, POOL, stand.engines.addresses, fill=cell.kind.index_blocks, prompts=told, seed=7
    )
    await voice.together(speak, [speech])
    await stand.until("picker_index_entries", 0.95 * cell.kind.index_blocks, seconds=180.0)


async def _row(
    gate: Fleet, extent: Extent, cell: Cell, stand: Stand, size: int, idle: float
) -> dict[str, Any]:
    (driven,) = await gate.together(drive_server, [_drive(extent, cell, stand, size)])
    rss = stand.rss_mb()
    open_ = await _open(gate, extent, stand, cell, size, extent.rate(size))
    return {
        **_named(extent, cell, stand, size),
        **shown(cost(driven, idle_share=idle)),
        "p50_ms": open_["p50_ms"],
        "p99_ms": open_["p99_ms"],
        "rate": open_["rate"],
        "closed_p50_ms": latency(driven)["p50_ms"],
        "closed_p99_ms": latency(driven)["p99_ms"],
        "rss_mb": rss,
        "idle_pct": round(100 * idle, 2),
        "decisions": driven.done,
        "failed": driven.failed + driven.refused + open_["failed"],
        "calibration_ns": round(calibration_ns(), 1),
    }


async def _open(
    gate: Fleet, extent: Extent, stand: Stand, cell: Cell, size: int, rate: float
) -> dict[str, Any]:
    (driven,) = await gate.together(drive_server, [_drive(extent, cell, stand, size, rate=rate)])
    return {
        **_named(extent, cell, stand, size),
        "streams": None,
        **shown(cost(driven)),
        **latency(driven),
        "rate": rate,
        "decisions": driven.done,
        "failed": driven.failed + driven.refused,
    }


def _named(extent: Extent, cell: Cell, stand: Stand, size: int) -> dict[str, Any]:
    kind = stand.kind
    return {
        "target": "picker",
        "transport": kind.transport,
        "plane": kind.plane,
        "workers": kind.workers,
        "replicas": kind.replicas,
        "index_blocks": kind.index_blocks,
        "body_bytes": size,
        "prompts": "new" if cell.fresh else "known",
        "mode": extent.mode,
        "streams": extent.streams,
    }


def _drive(extent: Extent, cell: Cell, stand: Stand, size: int, *, rate: float = 0.0) -> Drive:
    return Drive(
        stand.addresses,
        size=size,
        prompts=0 if cell.fresh else prompts_of(size),
        mode=extent.mode,
        streams=extent.streams,
        rate=rate,
        seconds=extent.seconds,
        watched=stand.watched(),
    )


def _conditions(extent: Extent) -> dict[str, Any]:
    return {
        "size": extent.whole,
        "streams": extent.streams,
        "mode": f"{extent.mode.upper()}, response body NONE",
        "round": f"{extent.seconds:g} s after {WARM_SECONDS:g} s of warming up at least",
        "cpu": "of the replica's process, all it does meanwhile included; net: without what it does unasked",
        "latency": "from a stream's opening to its pick, open loop, by the wall",
        "scrapes": "every 0.5 s of each worker, with 1,000 workers every 5 s",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


@contextmanager
def enough_files(wanted: int = 20_000) -> Iterator[None]:
    """Let this process open as many sockets as a thousand engines need, as far as it may."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
