"""The workers of the pool, as discovery names them, and the last report of each.

One address may carry several workers, one per data-parallel rank: they share one scrape. Listeners hear of workers that
join and leave and of fresh reports, in the order in which it happens, from the event loop's thread; what they raise
reaches the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from picker.core.adapters import Held
from picker.core.load import Report
from picker.core.worker import worker_name
from picker.workers.adapters import AdapterNames, Models, labelled
from picker.workers.record import Record

log = structlog.get_logger(__name__)


class Endpoint(Protocol):
    """What discovery says of one worker."""

    @property
    def address(self) -> str:
        """``host:port``; IPv6 hosts in brackets."""
        ...

    @property
    def rank(self) -> int:
        """Data-parallel rank."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels, or those of the file."""
        ...


@dataclass(slots=True)
class Counts:
    """What happened to the set of workers and to what scrapes brought."""

    joined: int = 0
    left: int = 0
    ranks_missing: int = 0
    """Pages that did not speak of a rank which discovery names at that address."""
    ranks_unnamed: int = 0
    """Ranks on a page that discovery does not name at that address: their load is not seen."""
    gone: int = 0
    """Times that a worker was left out because nobody listened at its address."""


class Registry:
    """The set of known workers; always the last one that discovery gave, whole."""

    def __init__(self, *, stale_seconds: float = 5.0, adapters: AdapterNames | None = None) -> None:
        self.counts = Counts()
        self.adapters = AdapterNames() if adapters is None else adapters
        """All names that mean an adapter, as operators and workers tell."""
        self._stale = stale_seconds
        self._records: dict[str, Record] = {}
        self._by_address: dict[str, dict[int, Record]] = {}
        self._names: tuple[str, ...] = ()
        self._routable: tuple[str, ...] = ()
        self._told = False
        self._mixed = False
        self._joined: list[Callable[[str], None]] = []
        self._left: list[Callable[[str], None]] = []
        self._asked: list[Callable[[str], None]] = []
        self._reported: list[Callable[[str, Report], None]] = []

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, worker: str) -> bool:
        return worker in self._records

    @property
    def stale_seconds(self) -> float:
        """Age above which a report is no longer fresh."""
        return self._stale

    @property
    def told(self) -> bool:
        """Whether discovery has given a set yet, be it empty."""
        return self._told

    @property
    def names(self) -> tuple[str, ...]:
        """All workers, sorted by name: the same order in every replica."""
        return self._names

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, each once."""
        return tuple(self._by_address)

    @property
    def records(self) -> tuple[Record, ...]:
        """All records, in the order of `names`."""
        return tuple(self._records[name] for name in self._names)

    def record(self, worker: str) -> Record | None:
        """What is known of a worker; None for one that is not in the pool."""
        return self._records.get(worker)

    def report(self, worker: str, now: float) -> Report | None:
        """The worker's last report, if it is fresh."""
        record = self._records.get(worker)
        report = None if record is None else record.report
        return report if report is not None and now - report.ended <= self._stale else None

    @property
    def mixed(self) -> bool:
        """Whether workers are known to serve different base models."""
        return self._mixed

    def serves(self, worker: str, model: str) -> bool | None:
        """Whether the worker's list of models names a base model so; None: it has told none."""
        record = self._records.get(worker)
        if record is None or record.models is None or not record.models.bases:
            return None
        return model in record.models.bases

    def held(self, worker: str, now: float) -> Held:
        """The LoRA adapters of a worker, by all that it says; nothing of one that is not in the pool."""
        record = self._records.get(worker)
        if record is None:
            return Held()
        listed = None if record.models is None else record.models.names
        report = record.report
        if report is None or now - report.ended > self._stale:
            return Held(record.labelled, listed)
        return Held(record.labelled, listed, report.loras, report.max_loras)

    def routable(self, now: float) -> tuple[str, ...]:
        """Workers that requests may be sent to, in the order of `names`.

        Left out are those that sleep, and those at whose address nobody listens any more; the latter count again where
        nobody else is left, since not being reached from here proves nothing then.
        """
        return self._routable

    def listen(
        self,
        *,
        joined: Callable[[str], None] | None = None,
        left: Callable[[str], None] | None = None,
        asked: Callable[[str], None] | None = None,
        reported: Callable[[str, Report], None] | None = None,
    ) -> None:
        """Hear of workers that join or leave from now on, of each that is being asked, and of every good report."""
        self._joined += [joined] if joined else []
        self._left += [left] if left else []
        self._asked += [asked] if asked else []
        self._reported += [reported] if reported else []

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        """Take over the whole set. Those gone are told first; a worker that only changed its labels stays."""
        wanted = {worker_name(endpoint.address, endpoint.rank): endpoint for endpoint in endpoints}
        self._told = True
        gone = [name for name in self._names if name not in wanted]
        new = sorted(name for name in wanted if name not in self._records)
        for name in gone:
            self._take_out(name)
        for name, endpoint in wanted.items():
            if name in self._records:
                self._label(self._records[name], endpoint.labels)
        for name in new:
            self._put_in(name, wanted[name])
        self._names = tuple(sorted(self._records))
        self._refresh_routable()
        if gone:
            self._tell_bases()
        self.counts.left += len(gone)
        self.counts.joined += len(new)
        for name in gone:
            for left in self._left:
                left(name)
        for name in new:
            for joined in self._joined:
                joined(name)

    def asked(self, address: str) -> None:
        """A scrape of that address begins now."""
        for record in self._by_address.get(address, {}).values():
            for asked in self._asked:
                asked(record.name)

    def heard(self, address: str, reports: Mapping[int, Report]) -> None:
        """A scrape of that address brought these reports, by rank. One that left meanwhile is ignored."""
        records = self._by_address.get(address, {})
        if len(records) == len(reports) == 1:
            # one process, one worker: whatever rank it calls itself, it is the one that is meant
            reports = dict(zip(records, reports.values(), strict=True))
        self.counts.ranks_unnamed += sum(rank not in records for rank in reports) if records else 0
        for rank, record in list(records.items()):
            report = reports.get(rank)
            if report is None:
                self.counts.ranks_missing += 1
                record.failed(f"its metrics page does not speak of rank {rank}")
                continue
            before = record.asleep, record.here
            record.report, record.ok, record.failures, record.error = report, True, 0, ""
            record.unconnected = 0
            if report.loras:
                self.adapters.learn(report.loras)
            if (record.asleep, record.here) != before:
                self._refresh_routable()
            for reported in self._reported:
                reported(record.name, report)

    def unheard(self, address: str, error: str, *, unconnected: bool = False) -> None:
        """A scrape of that address failed; the last good report stays until it is stale.

        ``unconnected``: nobody listened there. Anything else, a timeout included, may be a busy engine.
        """
        for record in self._by_address.get(address, {}).values():
            was_here = record.here
            record.failed(error)
            record.unconnected = record.unconnected + 1 if unconnected else 0
            if record.here != was_here:
                self.counts.gone += was_here
                self._refresh_routable()

    def listed(self, address: str, models: Models | None) -> None:
        """The engine at that address told its list of models; None: it has not for long, or will not."""
        records = self._by_address.get(address, {}).values()
        before = next((record.models for record in records), None)
        for record in records:
            record.models = models
        if models is not None and records:
            self.adapters.learn(models.adapters, models.adapters)
        if (before and before.bases) != (models and models.bases):
            self._tell_bases()

    def _tell_bases(self) -> None:
        told = {record.models.bases for record in self._records.values() if record.models is not None}
        self.adapters.call_bases(frozenset().union(*told))
        mixed = len(told - {frozenset()}) > 1
        if mixed != self._mixed:
            log.info("the workers serve different models" if mixed else "the workers serve the same models")
        self._mixed = mixed

    def _label(self, record: Record, labels: Mapping[str, str]) -> None:
        record.labels, record.labelled = dict(labels), labelled(labels)
        if record.labelled:
            self.adapters.learn(record.labelled)

    def _put_in(self, name: str, endpoint: Endpoint) -> None:
        record = Record(name, endpoint.address, endpoint.rank)
        self._label(record, endpoint.labels)
        record.models = next(
            (other.models for other in self._by_address.get(record.address, {}).values()), None
        )
        self._records[name] = record
        self._by_address.setdefault(endpoint.address, {})[endpoint.rank] = record

    def _take_out(self, name: str) -> None:
        record = self._records.pop(name)
        ranks = self._by_address[record.address]
        del ranks[record.rank]
        if not ranks:
            del self._by_address[record.address]

    def _refresh_routable(self) -> None:
        awake = tuple(name for name in self._names if not self._records[name].asleep)
        self._routable = tuple(name for name in awake if self._records[name].here) or awake
