"""The same load on ours and on another server of ext_proc, by turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from picker.bench.decide.drive import Drive, drive_server
from picker.bench.decide.extent import KB, Cell, Extent, prompts_of
from picker.bench.decide.rows import cost, latency, middle, ratios
from picker.bench.decide.stand import Stand, standing
from picker.bench.fleet import Fleet
from picker.bench.timing import process_rss_bytes

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Other:
    """Another server of ext_proc that runs already."""

    address: str
    pid: int | None = None
    """Its process, where its processor time and memory are to be told."""


async def beside(gate: Fleet, extent: Extent, other: Other, say: Say) -> dict[str, Any]:
    """The same load on ours and on another server, by turns; medians, and theirs to ours."""
    cell, rows, found = extent.cells[0], [], []
    async with standing(cell.kind) as stand:
        for size in cell.sizes:
            say(f"{size / KB:g} KB on ours and on {other.address}, by turns")
            taken: dict[str, list[dict[str, float | None]]] = {"picker": [], other.address: []}
            for _ in range(extent.turns):
                for target in taken:
                    taken[target].append(await _target(gate, extent, cell, stand, size, other, target))
            both = {target: middle(rounds) for target, rounds in taken.items()}
            rows += [
                {"target": target, "body_bytes": size, "streams": extent.streams, "mode": extent.mode}
                | columns
                for target, columns in both.items()
            ]
            found.append({"body_bytes": size} | ratios(both["picker"], both[other.address]))
    return {
        "address": other.address,
        "transport": cell.kind.transport,
        "plane": cell.kind.plane,
        "workers": cell.kind.workers,
        "rounds": extent.turns,
        "rows": rows,
        "theirs_to_ours": found,
    }


async def _target(
    gate: Fleet, extent: Extent, cell: Cell, stand: Stand, size: int, other: Other, target: str
) -> dict[str, float | None]:
    ours = target == "picker"
    watched = stand.watched() if ours else {"other": other.pid} if other.pid else {}
    addresses = stand.addresses if ours else [other.address]
    found: dict[str, float | None] = {}
    for rate in (0.0, extent.rate(size)):
        drive = Drive(
            addresses, size=size, prompts=prompts_of(size), mode=extent.mode, streams=extent.streams,
            rate=rate, seconds=extent.seconds, watched=watched,
        )  # fmt: skip
        (driven,) = await gate.together(drive_server, [drive])
        if rate:
            found |= latency(driven)
        else:
            spent = cost(driven)
            found |= {"per_s": round(spent.per_s, 1), "cpu_us": round(spent.replica_us, 1) or None}
        found["failed"] = (found.get("failed") or 0) + driven.failed + driven.refused
    pid = stand.pids()[0] if ours else other.pid
    found["rss_mb"] = round(process_rss_bytes(pid) / 1e6, 1) if pid else None
    return found
