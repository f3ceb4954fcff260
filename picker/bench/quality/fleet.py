"""Simulated engines in virtual time, each with the bridge that turns its KV events into ours."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from picker.bench.quality.trace import BLOCK_TOKENS, Request
from picker.bench.quality.world import World
from picker.core.load import Load, Report
from picker.events.bridge import dialect
from picker.events.bridge.blockset import BlockSet
from picker.events.bridge.changes import Change
from picker.sim.engine.blocks import BlockPool, CacheEvent, Removed, Stored
from picker.sim.engine.dialects import short_hash
from picker.sim.engine.scheduler import Pace, Scheduler, Step
from picker.sim.engine.scheduler import Sequence as Work

_PACE = Pace(
    max_sequences=256, max_batched_tokens=4096, prefill_seconds_per_token=0.0001, decode_seconds=0.025
)

_START = bytes(32)
"""All engines hash alike, as those with one hash seed do; and every run does."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the engines are: by default like nodes of eight accelerators under a large model with small KV blocks."""

    engines: int = 8
    blocks: int = 4000
    """KV blocks of 512 tokens in each."""
    pace: Pace = _PACE


class Engine:
    """One engine and its bridge. ``told`` hears the changes of its cache, ``ended`` the ends of its requests."""

    def __init__(
        self,
        name: str,
        world: World,
        hardware: Hardware,
        *,
        told: Callable[[str, list[Change]], None],
        ended: Callable[[Work], None],
    ) -> None:
        self.name = name
        self.pool = BlockPool(hardware.blocks, BLOCK_TOKENS, start=_START)
        self.scheduler = Scheduler(self.pool, hardware.pace)
        self._bridge = BlockSet(BLOCK_TOKENS)
        self._world, self._told, self._ended = world, told, ended
        self._stepping = False

    def submit(self, work: Work) -> None:
        """A request arrives."""
        self.scheduler.add(work, self._world.now())
        if not self._stepping:
            self._step()

    def _step(self) -> None:
        step = self.scheduler.plan(self._world.now())
        self._stepping = step is not None
        if step is not None:
            self._world.later(step.seconds, lambda: self._over(step))

    def _over(self, step: Step) -> None:
        for work in self.scheduler.complete(step, self._world.now()):
            if work.state == "finished":
                self._ended(work)
        self._announce()
        self._step()

    def _announce(self) -> None:
        now = self._world.now()
        changes = [
            change for event in self.pool.take_events() for change in self._bridge.apply(_decoded(event), now)
        ]
        if changes:
            self._told(self.name, changes)

    # what it truly carries

    def cached(self, hashes: Sequence[bytes]) -> int:
        """How many leading blocks of a prompt are in the cache now."""
        return len(self.pool.find(hashes))

    def load(self) -> Load:
        """Prompt tokens to be computed, blocks held or waited for, requests."""
        scheduler = self.scheduler
        tokens = sum(work.prefill_left for work in scheduler.running)
        blocks = self.pool.used
        for work in scheduler.waiting:
            tokens += len(work.prompt) - self.cached(work.hashes) * BLOCK_TOKENS
            blocks += -(-len(work.prompt) // BLOCK_TOKENS)
        return Load(tokens, blocks, self.requests)

    @property
    def requests(self) -> int:
        """Requests accepted and not finished."""
        return len(self.scheduler.running) + len(self.scheduler.waiting)

    def report(self) -> Report:
        """What a scrape of its metrics says now."""
        now, pool, scheduler = self._world.now(), self.pool, self.scheduler
        return Report(
            now,
            now,
            len(scheduler.running),
            len(scheduler.waiting),
            kv_usage=pool.used / pool.total,
            total_blocks=pool.total,
            block_size=BLOCK_TOKENS,
        )


def engine_hashes(request: Request) -> list[bytes]:
    """The engines' own hashes of a prompt's full blocks."""
    return BlockPool(0, BLOCK_TOKENS, start=_START).chain(None, request.prompt(), lora="", salt="")


def work_of(request: Request) -> Work:
    """The request as an engine takes it."""
    return Work(
        str(request.number), request.prompt(), request.answer(), "length", booking=str(request.number)
    )


def _decoded(event: CacheEvent) -> dialect.EngineEvent:
    """The event as the bridge's decoder gives it."""
    if isinstance(event, Stored):
        return dialect.Stored(
            hashes=tuple(short_hash(each) for each in event.hashes),
            parent=None if event.parent is None else short_hash(event.parent),
            tokens=array("I", event.tokens),
            block_size=BLOCK_TOKENS,
            tier=0,
            lora=event.lora,
            salt=event.salt,
            opaque=(),
            group=None,
            kind=None,
        )
    if isinstance(event, Removed):
        return dialect.Removed((short_hash(event.block),), 0, None)
    return dialect.Cleared()
