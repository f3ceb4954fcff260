"""Where the time of a decision goes, part by part: a replica that samples itself under load."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from picker.bench.decide.drive import Drive, drive_server
from picker.bench.decide.rows import cost
from picker.bench.decide.sampled import LOOP, WAITING
from picker.bench.decide.stand import Kind, Stand, standing
from picker.bench.fleet import Fleet
from picker.sim.processes import Program

OTHER = "everything else"
PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("event loop", (LOOP,)),
    (
        "ext_proc in: messages and bodies",
        (
            "picker.serving.wire",
            "picker.serving.reading",
            "picker.serving.known",
            "picker.serving.shown",
            "picker.serving.request_side",
            "picker.serving.exchange",
            "picker.serving.buffers",
            "picker.serving.passage",
            "picker.serving.modes",
            "picker.serving.messages",
        ),
    ),
    (
        "ext_proc out: the answer",
        (
            "picker.serving.replies",
            "picker.serving.encoded",
            "picker.serving.response_side",
            "picker.serving.refusals",
            "picker.serving.effects",
            "picker.answers",
            "picker.responses",
        ),
    ),
    ("transport: HTTP/2, gRPC, sockets", ("picker.serving",)),
    ("request: JSON, chat template, tokens", ("picker.requests", WAITING)),
    ("hashing", ("picker.core.blocks", "picker.prompts")),
    ("matching", ("picker.core.index", "picker.core.approximate", "picker.events.picks")),
    (
        "pricing and choosing",
        (
            "picker.core",
            "picker.deciding",
            "picker.survey",
            "picker.decision",
            "picker.eligibility",
            "picker.pool",
            "picker.criteria",
        ),
    ),
    (
        "booking",
        ("stateplane", "picker.underway", "picker.prefills", "picker.reconciling", "picker.membership"),
    ),
    ("metrics and journal", ("picker.admin",)),
    ("scraping and discovery", ("picker.workers", "discovery")),
    ("KV events", ("picker.events",)),
    ("between the parts", ("picker.picking",)),
)
"""Parts by the modules whose time is theirs; the longest name that fits decides."""


def part_of(module: str) -> str:
    """The part that a module belongs to."""
    best, found = -1, OTHER
    for name, prefixes in PARTS:
        for prefix in prefixes:
            if (module == prefix or module.startswith(prefix + ".")) and len(prefix) > best:
                best, found = len(prefix), name
    return found


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Share of each part in the looks, in the order of `PARTS`; those without any are left out."""
    total = sum(counts.values())
    looks = dict.fromkeys([name for name, _ in PARTS] + [OTHER], 0)
    for module, count in counts.items():
        looks[part_of(module)] += count
    return {name: count / total for name, count in looks.items() if count}


async def profile(
    gate: Fleet, kind: Kind, sizes: Mapping[int, int], *, seconds: float = 4.0
) -> list[dict[str, Any]]:
    """Microseconds of a decision by part, for each size of body; ``sizes``: body bytes -> prompts."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="picker-bench-") as folder:
        file = Path(folder) / "looks.json"

        def sampling(program: Program) -> Program:
            argv = (sys.executable, "-m", "picker.bench.decide.sampled", str(file), "serve")
            return replace(program, argv=argv)

        async with standing(kind, started_as=sampling) as stand:
            for size, prompts in sizes.items():
                drive = Drive(
                    stand.addresses, size=size, prompts=prompts, seconds=seconds, watched=stand.watched()
                )
                found.append(await _one(gate, stand, drive, file))
    return found


def _taken(file: Path) -> dict[str, int]:
    """What the replica has written, which is then gone; empty: nothing yet."""
    if not file.exists():
        return {}
    counts: dict[str, int] = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return counts


async def _one(gate: Fleet, stand: Stand, drive: Drive, file: Path) -> dict[str, Any]:
    await gate.together(drive_server, [replace(drive, seconds=0.1)])
    replica = stand.children[stand.replicas[0].name]
    await stand.children.kill(replica.name, signal.SIGUSR1)
    (driven,) = await gate.together(drive_server, [drive])
    await stand.children.kill(replica.name, signal.SIGUSR2)
    until = monotonic() + 10
    while not (counts := _taken(file)):
        if monotonic() > until:
            raise TimeoutError("the replica did not tell where its time went")
        await asyncio.sleep(0.05)
    whole = cost(driven).replica_us
    parts = {name: round(share * whole, 1) for name, share in shares(counts).items()}
    return {
        "body_bytes": drive.size,
        "transport": stand.kind.transport,
        "plane": stand.kind.plane,
        "workers": stand.kind.workers,
        "looks": sum(counts.values()),
        "cpu_us": round(whole, 1),
        "parts_us": parts,
    }
