"""What KV events cost the decisions beside them: the same open loop with events and without, by turns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from picker.bench.decide.drive import Drive, Driven, drive_server
from picker.bench.decide.rows import Pair, latency, pair_ratio
from picker.bench.decide.stand import POOL, Kind, Stand, standing
from picker.bench.decide.voices import EVENT_BLOCKS, Speech, Spoken, speak
from picker.bench.fleet import Fleet

APPLIED = "picker_events_stream_applied_total"
LOST = ("picker_events_queue_dropped_total", "picker_events_stream_gaps_total")


CATCH_UP_SECONDS = 20.0
"""How long a replica may take afterwards to apply what it had not yet."""


@dataclass(frozen=True, slots=True)
class Storm:
    """How much of both."""

    rate: float = 500.0
    """Requests each second."""
    events: float = 5_000.0
    """Events each second, of `EVENT_BLOCKS` blocks each."""
    pairs: int = 5
    seconds: float = 4.0
    """Of each run."""
    size: int = 1024


async def storm(gate: Fleet, voice: Fleet, kind: Kind, size: Storm) -> dict[str, Any]:
    """Every pair in turn, the first one of a pair by turns too."""
    rows: list[dict[str, Any]] = []
    pairs: list[Pair] = []
    async with standing(kind) as stand:
        await gate.together(drive_server, [_drive(stand, size, 0)])
        for number in range(size.pairs):
            order = (True, False) if number % 2 else (False, True)
            found = {stormy: await _run(gate, voice, stand, size, number, stormy=stormy) for stormy in order}
            pair = pair_of(found[True], found[False])
            pairs += [pair] if pair is not None else []
            quiet = {f"quiet_{key}": value for key, value in found[False].items()}
            ratio = round(pair.ratio, 3) if pair is not None else None
            rows.append({"pair": number + 1} | found[True] | quiet | {"ratio": ratio})
    if not pairs:
        raise TimeoutError("no pair of runs was measured: this machine is too busy")
    return {
        "requests_per_s": size.rate,
        "events_per_s": size.events,
        "blocks_per_event": EVENT_BLOCKS,
        "workers": kind.workers,
        "plane": kind.plane,
        "transport": kind.transport,
        "pairs": rows,
        "ratio": round(pair_ratio(pairs), 3),
        "p99_ms": round(median(pair.with_p99_ms for pair in pairs), 3),
        "quiet_p99_ms": round(median(pair.without_p99_ms for pair in pairs), 3),
        "applied_per_s": round(median(row["applied_per_s"] for row in rows), 1),
        "lost": sum(row["lost"] for row in rows),
    }


def pair_of(stormy: Mapping[str, Any], quiet: Mapping[str, Any]) -> Pair | None:
    """The two runs beside each other; None where one of them decided nothing."""
    if not stormy["p99_ms"] or not quiet["p99_ms"]:
        return None
    return Pair(stormy["p99_ms"], quiet["p99_ms"])


async def _run(
    gate: Fleet, voice: Fleet, stand: Stand, size: Storm, number: int, *, stormy: bool
) -> dict[str, Any]:
    drive = _drive(stand, size, number)
    if not stormy:
        (driven,) = await gate.together(drive_server, [drive])
        return _shown(driven)
    speech = Speech(
        stand.nats_url,
        POOL,
        stand.engines.addresses,
        rate=size.events,
        seconds=drive.warm + size.seconds + 0.5,
        seed=number,
    )
    before = await stand.metrics(APPLIED, *LOST)
    driven, spoken = await _both(gate, voice, drive, speech)
    behind = before[APPLIED] + spoken.events - (await stand.metrics(APPLIED))[APPLIED]
    with suppress(TimeoutError):  # what was not applied by then shows in the numbers, and breaks the budget
        await stand.until(APPLIED, before[APPLIED] + spoken.events, seconds=CATCH_UP_SECONDS)
    after = await stand.metrics(APPLIED, *LOST)
    applied = after[APPLIED] - before[APPLIED]
    return _shown(driven) | {
        "applied": int(applied),
        "published": spoken.events,
        "behind": int(behind),
        "applied_per_s": round(applied / max(spoken.seconds, 1e-9), 1),
        "lost": int(sum(after[name] - before[name] for name in LOST)),
    }


async def _both(gate: Fleet, voice: Fleet, drive: Drive, speech: Speech) -> tuple[Driven, Spoken]:
    speaking = asyncio.ensure_future(voice.together(speak, [speech]))
    (driven,), (spoken,) = await asyncio.gather(gate.together(drive_server, [drive]), speaking)
    return driven, spoken


def _drive(stand: Stand, size: Storm, number: int) -> Drive:
    return Drive(
        stand.addresses,
        size=size.size,
        rate=size.rate,
        seconds=size.seconds,
        watched=stand.watched(),
        seed=number,
    )


def _shown(driven: Driven) -> dict[str, Any]:
    return latency(driven) | {
        "decided": len(driven.latencies),
        "failed": driven.failed,
        "cpu_us": round(sum(driven.cpu_ns.values()) / 1e3 / max(driven.done, 1), 1),
    }
