"""The bridge's own pages: health, and its counts as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from aiohttp import web

from picker.events.bridge.bridge import Bridge
from picker.webport import Counts


def lines(bridge: Bridge, connections: Counts) -> Iterator[str]:
    """The counts in the text format of Prometheus; ``connections`` are those of the port itself."""
    feed, ranks = bridge.feed, bridge.ranks
    yield from _counts("bridge", bridge.counts)
    yield from _counts("bridge_port", connections)
    yield from _counts("bridge_engine", feed.counts)
    yield from _counts("bridge_nats", bridge.link.counts)
    yield from _counts("bridge_published", ranks.publisher_counts)
    yield from _counts("bridge_batch", ranks.counts)
    yield from _counts("bridge_sleep", bridge.sleep.counts)
    for reason, count in sorted(ranks.counts.skipped.items()):
        yield f'picker_bridge_skipped_events_total{{reason="{reason}"}} {count}'
    yield f"picker_bridge_engine_connected {int(feed.connected)}"
    yield f"picker_bridge_nats_connected {int(bridge.link.connected)}"
    for number, rank in sorted(ranks.by_rank.items()):
        yield from _counts("bridge_blocks", rank.blocks.counts, f'{{rank="{number}"}}')
        for name, value in (
            ("announced_blocks", len(rank.blocks.announced)),
            ("known_engine_blocks", len(rank.blocks)),
            ("parked_engine_blocks", rank.blocks.parked),
            ("partial", int(rank.publisher.partial)),
            ("refused", int(bool(rank.blocks.refusal))),
            ("asleep", int(rank.asleep)),
        ):
            yield f'picker_bridge_{name}{{rank="{number}"}} {value}'


def health(bridge: Bridge) -> dict[str, object]:
    """What a person wants to see first."""
    return {
        "engine": "connected" if bridge.feed.connected else "away",
        "nats": "connected" if bridge.link.connected else f"away: {bridge.link.last_error}",
        "epoch": list(bridge.ranks.epoch),
        "ranks": {
            str(number): {
                "worker": rank.worker,
                "sequence": rank.publisher.sequence,
                "blocks": len(rank.blocks.announced),
                "engine_block_size": rank.blocks.engine_block_size,
                "partial": rank.publisher.partial,
                "asleep": rank.asleep,
                "refusal": rank.blocks.refusal,
            }
            for number, rank in sorted(bridge.ranks.by_rank.items())
        },
    }


def application(bridge: Bridge, connections: Counts) -> web.Application:
    """``/healthz`` and ``/metrics``."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response(health(bridge))

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text="\n".join(lines(bridge, connections)) + "\n", content_type="text/plain")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    return app


def _counts(prefix: str, counts: object, labels: str = "") -> Iterator[str]:
    assert is_dataclass(counts)
    for field in fields(counts):
        value = getattr(counts, field.name)
        if isinstance(value, int):
            yield f"picker_{prefix}_{field.name}_total{labels} {value}"
