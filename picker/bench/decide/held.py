"""What streams cost that wait for long responses: memory of each, and processor time of all while nothing happens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import Any

from picker.bench.decide.drive import Drive, drive_server
from picker.bench.decide.gateway import Gateway, Stream
from picker.bench.decide.script import scripts
from picker.bench.decide.stand import Kind, standing
from picker.bench.fleet import Fleet, Stage
from picker.bench.timing import process_cpu_ns, process_rss_bytes

AT_ONCE = 64
"""Streams on their way to being held."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One round of holding streams, in the gateway's process."""

    address: str
    pid: int
    streams: int = 10_000
    connections: int = 2
    size: int = 1024
    idle_seconds: float = 4.0
    settle_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class Held:
    """What was found."""

    streams: int
    bytes_before: int
    bytes_after: int
    idle_share: float
    """Of a core, while all of them waited."""
    seconds_to_open: float


async def hold_streams(stage: Stage, hold: Hold) -> Held:
    """Open the streams as far as their response's headers, and let them wait. Raises RuntimeError where some fail."""
    gateways = [await Gateway.open(hold.address) for _ in range(hold.connections)]
    said = scripts(hold.size, 32, "full_duplex_streamed", seed=1)
    await stage.ready()
    before, begun = process_rss_bytes(hold.pid), monotonic()
    room, failed = asyncio.Semaphore(AT_ONCE), 0

    def over(stream: Stream) -> None:
        nonlocal failed
        failed += stream.failed or stream.refused
        room.release()

    try:
        for number in range(hold.streams):
            await room.acquire()
            gateways[number % len(gateways)].send(
                said[number % len(said)], number, over, buffered=False, hold=True
            )
        for _ in range(AT_ONCE):
            await room.acquire()
        took = monotonic() - begun
        await asyncio.sleep(hold.settle_seconds)
        open_ = sum(gateway.open_streams for gateway in gateways)
        if failed or open_ != hold.streams:
            raise RuntimeError(f"{open_} of {hold.streams} streams are held, {failed} failed")
        cpu, since = process_cpu_ns(hold.pid), monotonic()
        await asyncio.sleep(hold.idle_seconds)
        share = (process_cpu_ns(hold.pid) - cpu) / 1e9 / (monotonic() - since)
        return Held(open_, before, process_rss_bytes(hold.pid), share, took)
    finally:
        for gateway in gateways:
            gateway.close()


async def held(gate: Fleet, kind: Kind, streams: int, *, idle_seconds: float = 4.0) -> dict[str, Any]:
    """A warm replica holds so many streams, after it was measured holding none."""
    kind = Kind(
        transport=kind.transport,
        plane=kind.plane,
        workers=kind.workers,
        settings={
            **kind.settings,
            "PICKER_STREAM_HOLD": "response",
            "PICKER_MAX_STREAMS": str(2 * streams + 100),
            "PICKER_MAX_CONNECTION_STREAMS": str(streams + 100),
        },
    )
    async with standing(kind) as stand:
        # what is kept of past decisions is full before anything is compared
        await gate.together(
            drive_server, [Drive(stand.addresses, seconds=idle_seconds, watched=stand.watched())]
        )
        alone = await stand.idle_share(idle_seconds)
        (pid,) = stand.pids()
        one = Hold(
            stand.addresses[0], pid, streams, idle_seconds=idle_seconds, settle_seconds=min(idle_seconds, 3.0)
        )
        (found,) = await gate.together(hold_streams, [one])
    return {
        "streams": found.streams,
        "transport": kind.transport,
        "workers": kind.workers,
        "bytes_each": round((found.bytes_after - found.bytes_before) / max(found.streams, 1), 1),
        "rss_mb": round(found.bytes_after / 1e6, 1),
        "idle_cpu_pct": round(100 * found.idle_share, 2),
        "idle_cpu_pct_without": round(100 * alone, 2),
        "opened_per_s": round(found.streams / found.seconds_to_open, 1),
    }
