"""What the engine really carries and holds, for tests and for people who check a picker against it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from picker.sim.engine.dialects import short_hash

if TYPE_CHECKING:
    from picker.sim.engine.engine import Engine
    from picker.sim.engine.scheduler import Sequence


def load(engine: Engine) -> dict[str, object]:
    """Every sequence in the queue and in the batch, and the sums over them."""
    scheduler, pool = engine.scheduler, engine.pool
    now = time.monotonic()
    carried = [*scheduler.running, *scheduler.waiting]
    return {
        "name": engine.options.name,
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting),
        "prefill_tokens_left": sum(_left(engine, each) for each in carried),
        "blocks_used": pool.used,
        "blocks_total": pool.total,
        "requests": [_request(engine, each, now) for each in carried],
    }


def lives(engine: Engine, after: int) -> dict[str, object]:
    """What it carries, since when, and what ended after the end of that number: nothing between two looks is lost.

    Times are on this machine's monotonic clock. ``born`` names this life of the engine; a look with the last
    ``ended[-1].number`` of another life starts anew with ``after`` 0.
    """
    scheduler = engine.scheduler
    ended = [life for life in reversed(scheduler.lives) if life.number > after]
    return {
        "name": engine.options.name,
        "born": engine.born,
        "now": time.monotonic(),
        "carried": [
            {"id": each.name, "booking": each.booking, "arrived": each.arrived, "state": each.state}
            for each in (*scheduler.running, *scheduler.waiting)
        ],
        "ended": [asdict(life) for life in reversed(ended)],
    }


def _request(engine: Engine, sequence: Sequence, now: float) -> dict[str, object]:
    return {
        "id": sequence.name,
        "booking": sequence.booking,
        "state": sequence.state,
        "age_seconds": round(now - sequence.arrived, 3),
        "prompt_tokens": len(sequence.prompt),
        "cached_tokens": _cached(engine, sequence),
        "prefill_tokens_left": _left(engine, sequence),
        "output_tokens": sequence.produced,
        "output_tokens_left": len(sequence.answer) - sequence.produced,
        "blocks": len(sequence.blocks),
    }


def _cached(engine: Engine, sequence: Sequence) -> int:
    """Prompt tokens found in the cache; a waiting sequence is taken to find what lies there now."""
    if sequence.state == "waiting":
        return len(engine.scheduler.hits(sequence)) * engine.pool.block_size
    return sequence.cached


def _left(engine: Engine, sequence: Sequence) -> int:
    if sequence.state == "waiting":
        return len(sequence.prompt) - _cached(engine, sequence)
    return sequence.prefill_left


def blocks(engine: Engine) -> dict[str, object]:
    """Every resident block: the engine's hash of it and of its parent, its tokens, its physical copies."""
    resident = [
        {
            "hash": short_hash(each),
            "parent": None if content.parent is None else short_hash(content.parent),
            "tokens": content.tokens,
            "lora": content.lora,
            "salt": content.salt,
            "copies": copies,
        }
        for each, content, copies in engine.pool.resident()
    ]
    return {"block_size": engine.pool.block_size, "count": len(resident), "blocks": resident}


def stats(engine: Engine) -> dict[str, object]:
    """Sums since the start."""
    publisher = engine.publisher
    return {
        "name": engine.options.name,
        **asdict(engine.scheduler.counts),
        **asdict(engine.counts),
        "evictions": engine.pool.evictions,
        "kv_events": asdict(publisher.counts) if publisher else None,
    }
