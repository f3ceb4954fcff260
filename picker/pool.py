"""The workers of the pool as a pick sees them: who may be taken, and what each carries beyond the bookings."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from types import MappingProxyType

from picker.core.adapters import Held
from picker.core.criteria import WorkerTraits
from picker.core.load import NO_LOAD, SLACK, BookedHistory, Load, Report, UnbookedLoads
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
        self._fresh: dict[str, None] = {}
        """Workers whose unbooked load may be another one at the next look."""
        self._due: dict[str, float] = {}
        """When it may be another one for no other reason than time."""
        self._turns: list[tuple[float, str]] = []
        """Those moments in order, with some that hold no longer."""
        registry.listen(reported=self._reported)

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

    def changed(self, now: float) -> Sequence[str]:
        """Workers whose unbooked load may differ from what it was at the last call. For one caller alone.

        It changes with a report, a little later when that can be compared with the bookings, and when it is stale;
        until the first one can be compared, with every booking.
        """
        turns = self._turns
        while turns and turns[0][0] <= now:
            due, worker = heappop(turns)
            if self._due.get(worker) == due:
                self._fresh[worker] = None
        if not self._fresh:
            return ()
        changed = tuple(self._fresh)
        self._fresh.clear()
        for worker in changed:
            self._look_again(worker, now)
        return changed

    def _look_again(self, worker: str, now: float) -> None:
        """Say when the worker's unbooked load may change next, if nothing more is heard of it."""
        report = self._registry.report(worker, now)
        self._due.pop(worker, None)
        if report is None:
            return
        self._unbooked.of(worker, report, now)
        fixed = self._unbooked.fixed(worker)
        if fixed is None:
            self._fresh[worker] = None
            return
        due = report.ended + (self._registry.stale_seconds if fixed == report.ended else SLACK)
        if due <= now:
            self._fresh[worker] = None  # by a rounding it is not yet time
            return
        self._due[worker] = due
        heappush(self._turns, (due, worker))

    def _reported(self, worker: str, _report: Report) -> None:
        self._fresh[worker] = None

    def held(self, worker: str, now: float) -> Held:
        """The LoRA adapters that the worker holds, as far as is known."""
        return self._registry.held(worker, now)

    @property
    def mixed(self) -> bool:
        """Whether workers are known to serve different models."""
        return self._registry.mixed

    def serves(self, worker: str, model: str) -> bool | None:
        """Whether the worker serves a model of that name; None: it does not say what it serves."""
        return self._registry.serves(worker, model)

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
        self._fresh.pop(worker, None)
        self._due.pop(worker, None)
        self._history.drop(worker)
        self._unbooked.drop(worker)
