"""What a pick keeps from pick to pick is what it would find if it looked at everything anew."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from picker.core.load import Load, Report
from picker.pool import WorkerPool
from picker.settings import WorkerSettings
from picker.workers.registry import Registry

STALE = 5.0
WORKERS = ("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")


@dataclass(frozen=True)
class Named:
    address: str
    rank: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


class Kept:
    """A pool, and what a reader of `changed` knows of it."""

    def __init__(self) -> None:
        settings = WorkerSettings.model_construct()
        self.registry = Registry(stale_seconds=STALE)
        self.pool = WorkerPool(self.registry, settings, block_size=16)
        self.registry.listen(left=self.pool.left)
        self.now, self.names = 1000.0, self.registry.routable(0.0)
        self.known: dict[str, Load] = {}

    def read(self) -> None:
        changed = self.pool.changed(self.now)
        names = self.registry.routable(self.now)
        if names is not self.names:
            self.names, changed, self.known = names, names, {}
        for worker in changed:
            self.known[worker] = self.pool.unbooked(worker, self.now)

    def report(self, worker: str, running: int) -> None:
        told = Report(self.now - 0.01, self.now, running, 0, kv_usage=0.5, total_blocks=100, block_size=16)
        self.registry.heard(worker, {0: told})


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_every_change_of_a_workers_unbooked_load_is_told(seed: int, steps: int) -> None:
    rng, kept = random.Random(seed), Kept()
    kept.registry.update([Named(worker) for worker in WORKERS])
    for _ in range(steps):
        worker = rng.choice(WORKERS)
        match rng.randrange(6):
            case 0 | 1:
                kept.report(worker, rng.randrange(9))
            case 2:
                kept.pool.booked(worker, rng.randrange(9), rng.randrange(99), kept.now)
            case 3:
                kept.now += rng.choice([0.0, 0.01, 0.04, 0.06, 1.0, STALE, STALE + 0.01])
            case 4:
                kept.pool.unbooked(worker, kept.now)  # somebody else looks
            case 5 if rng.random() < 0.3:
                kept.registry.update([Named(one) for one in WORKERS if one != worker or rng.random() < 0.5])
        kept.read()
        assert kept.known == {one: kept.pool.unbooked(one, kept.now) for one in kept.names}


def test_a_pool_at_rest_has_no_changes_until_its_reports_are_stale() -> None:
    kept = Kept()
    kept.registry.update([Named(worker) for worker in WORKERS])
    for worker in WORKERS:
        kept.report(worker, 1)
    kept.now += 0.06
    assert set(kept.pool.changed(kept.now)) == set(WORKERS)
    for _ in range(40):
        kept.now += 0.1
        assert kept.pool.changed(kept.now) == ()
    kept.now += 1.0
    assert set(kept.pool.changed(kept.now)) == set(WORKERS), "from now on nobody knows"
    assert kept.pool.changed(kept.now) == ()
