"""Hand-made histories, with which the checks themselves are tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.history import Record, Type
from chaos.reading import read_story
from chaos.story import Story

WORKER = "10.0.0.1:8000"


@dataclass(slots=True)
class Tale:
    """Collects what happened, in any order; ``story()`` reads it as a history. Times are in seconds from its begin."""

    replicas: Sequence[str] = ("picker-0", "picker-1")
    workers: Mapping[str, str] = field(default_factory=lambda: {"engine-0": WORKER})
    plane: str = "redis"
    ends: float = 60.0
    _records: list[Record] = field(default_factory=list)
    _ended: int = 0

    def add(self, t: float, process: str, f: str, type_: Type, **value: Any) -> None:
        """Any record."""
        self._records.append(Record(t, process, f, type_, value))

    def call(
        self, number: int, *, sent: float, ended: float | None = None, outcome: str = "complete", **value: Any
    ) -> None:
        """A client's call."""
        self.add(sent, f"client-{number}", "call", "invoke", number=number)
        if ended is not None:
            kind: Type = "ok" if outcome == "complete" else "info" if outcome == "timeout" else "fail"
            self.add(ended, f"client-{number}", "call", kind, outcome=outcome, **value)

    def fault(
        self, kind: str, target: str, *, begun: float, healed: float | None = None, seen: bool = True
    ) -> None:
        """A fault's life."""
        id_ = f"{kind} {target} {begun}"

        def phase(t: float, name: str, type_: Type) -> None:
            self.add(t, "nemesis", "fault", type_, id=id_, kind=kind, target=target, phase=name, value={})

        phase(begun, "begin", "invoke")
        if seen:
            phase(begun + 0.01, "seen", "info")
        if healed is not None:
            phase(healed - 0.01, "healing", "info")
            phase(healed, "healed", "ok")

    def view(
        self,
        replica: str,
        t: float,
        *ids: str,
        owner: str = "picker-0",
        state: str = "active",
        worker: str = WORKER,
        epoch: int = 1,
        sums: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """A look at a replica's view; ``sums``: what it says of its sums, if not what its bookings add up to."""
        rows = [[id_, worker, f"{owner}/a", state, None, False, 1, 1, 0, 4, 1] for id_ in ids]
        told = sums if sums is not None else ({worker: [0, 4 * len(ids), len(ids)]} if ids else {})
        self.add(t, replica, "view", "ok", asked=t - 0.01, epoch=epoch, version=1, sums=told, bookings=rows)

    def views(self, begin: float, end: float, *ids: str, every: float = 0.25, **more: Any) -> None:
        """Looks at all replicas' views over some time, all alike."""
        for number in range(int((end - begin) / every)):
            for replica in self.replicas:
                self.view(replica, begin + number * every, *ids, **more)

    def carried(self, booking: str, begin: float, end: float, *, engine: str = "engine-0") -> None:
        """A request on an engine from its beginning to its end."""
        self._ended += 1
        row = {"number": self._ended, "name": f"request of {booking}", "booking": booking}
        ended = [{**row, "arrived": begin, "ended": end}]
        self.add(end + 0.05, engine, "carried", "ok", asked=end, born=0.5, carried=[], ended=ended)

    def counters(self, replica: str, t: float, **changed: float) -> None:
        """A look at a replica's counters; two underscores at the end of a name stand for a label."""
        self.add(t, replica, "counters", "ok", asked=t, changed=changed)

    def gauges(self, replica: str, t: float, **gauges: float) -> None:
        """A look at a replica's gauges."""
        self.add(t, replica, "counters", "ok", asked=t, changed={}, gauges=gauges)

    def stall(self, begin: float, end: float) -> None:
        """The suite itself stood still."""
        self.add(end, "run", "stall", "info", seconds=end - begin)

    def decisions(self, replica: str, t: float, buckets: Mapping[str, float]) -> None:
        """A look at a replica's histogram of decisions: limit -> how many within."""
        name = "endpoint_picker_decision_duration_seconds_bucket"
        changed = {f'{name}{{le="{limit}"}}': count for limit, count in buckets.items()}
        self.add(t, replica, "counters", "ok", asked=t, changed=changed)

    def status(self, replica: str, t: float, *, hold: str = "headers") -> None:
        """A look at a replica's status page."""
        self.add(t, replica, "status", "ok", asked=t, hold=hold)

    def story(self, *, twins: Mapping[str, Story] | None = None) -> Story:
        """Read it as a history. Raises HistoryError."""
        header = {
            "name": "tale",
            "engines": self.workers,
            "replicas": list(self.replicas),
            "plane": self.plane,
        }
        first, last = (
            Record(0.0, "run", "scenario", "info", header),
            Record(self.ends, "run", "end", "info", {}),
        )
        story = read_story([first, *sorted(self._records, key=lambda each: each.t), last])
        story.twins = dict(twins or {})
        return story
