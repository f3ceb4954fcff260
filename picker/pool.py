"""The workers of the pool as a pick sees them: who may be taken, and what each carries beyond the bookings."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from picker.core.adapters import Held
from picker.core.criteria import WorkerTraits
from picker.core.load import NO_LOAD, BookedHistory, Load, UnbookedLoads
from picker.settings import WorkerSettings
from picker.workers.registry import Registry


class WorkerPool:
    """Joins the registry's reports with the history of what was booked."""

    def __init__(self, registry: Registry, settings: WorkerSettings, *, block_size: int) -> None:
        self._registry = registry
        # a report is compared with bookings as old as itself
        horizon = settings.report_stale_seconds + settings.scrape_timeout_seconds + 1.0
        self._history = BookedHistory(horizon=horizon)
        self._unbooked = UnbookedLoads(self._history, block_size=block_size)
        self._traits: dict[str, tuple[tuple[object, ...], WorkerTraits]] = {}

    def booked(self, worker: str, requests: int, blocks: int, now: float) -> None:
        """From now on so much is booked on the worker; told by the view at each change."""
        self._history.note(worker, now, requests, blocks)

    def routable(self, now: float) -> Sequence[str]:
        """Workers that are in the pool and not known to be asleep."""
        return self._registry.routable(now)

    def unbooked(self, worker: str, now: float) -> Load:
        """What the worker reports beyond what was booked; nothing where it does not report."""
        report = self._registry.report(worker, now)
        return NO_LOAD if report is None else self._unbooked.of(worker, report, now)

    def held(self, worker: str, now: float) -> Held:
        """The LoRA adapters that the worker holds, as far as is known."""
        return self._registry.held(worker, now)

    def traits(self, worker: str, now: float) -> WorkerTraits:
        """What criteria may know of the worker; made once per report."""
        record, report = self._registry.record(worker), self._registry.report(worker, now)
        if record is None:
            return WorkerTraits(worker)
        facts = record.labels, report, record.models
        known = self._traits.get(worker)
        # all three are replaced when they change, never changed
        if known is not None and all(a is b for a, b in zip(known[0], facts, strict=True)):
            return known[1]
        traits = WorkerTraits(
            worker,
            record.address,
            record.rank,
            MappingProxyType(dict(record.labels)),
            running=None if report is None else report.running,
            waiting=None if report is None else report.waiting,
            kv_usage=None if report is None else report.kv_usage,
            loras=self._registry.held(worker, now).names,
        )
        self._traits[worker] = facts, traits
        return traits

    def left(self, worker: str) -> None:
        """Forget a worker that left the pool."""
        self._traits.pop(worker, None)
        self._history.drop(worker)
        self._unbooked.drop(worker)
