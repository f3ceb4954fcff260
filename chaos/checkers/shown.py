"""Checks of what replicas showed of themselves: bookings of a certain kind, events, prefixes, schemas, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.calls import EXPLICIT
from chaos.story import Booked, Story
from chaos.verdict import Finding, failed, judged, passed, unknown

_REQUESTS = "endpoint_picker_requests_total"
_SCHEMA = "picker_plane_backend_schema_total"


@dataclass(frozen=True, slots=True)
class BookingShown:
    """Some views showed a booking of that kind; ``attempt`` is the least number of its attempt."""

    attempt: int = 1
    state: str = ""
    cause: str = ""
    superseded: bool = False
    at_least: int = 1
    """So many different ones."""

    @property
    def name(self) -> str:
        """What it demands."""
        words = [self.state, self.cause, "superseded" if self.superseded else ""]
        words += [f"of attempt {self.attempt} or later"] if self.attempt > 1 else []
        return f"at least {self.at_least} bookings were shown: {' '.join(word for word in words if word)}"

    def judge(self, story: Story) -> Finding:
        """Counts ids over all looks."""
        found = {
            each.id for view in story.all_views() for each in view.bookings.values() if self._is_such(each)
        }
        said = f"{len(found)} were"
        return passed(self.name, said) if len(found) >= self.at_least else failed(self.name, said)

    def _is_such(self, booking: Booked) -> bool:
        return (
            booking.attempt >= self.attempt
            and self.state in ("", booking.state)
            and self.cause in ("", booking.cause)
            and (booking.superseded or not self.superseded)
        )


@dataclass(frozen=True, slots=True)
class Retried:
    """Callers sent so many requests again, and every last try was answered whole."""

    at_least: int

    @property
    def name(self) -> str:
        """What it demands."""
        return f"at least {self.at_least} requests were sent again, each answered whole in the end"

    def judge(self, story: Story) -> Finding:
        """Looks at the last try of each request that had several."""
        last = {}
        for call in sorted(story.calls, key=lambda each: each.begun):
            last[call.number] = call
        again = [call for call in last.values() if call.value.get("again")]
        if len(again) < self.at_least:
            return failed(self.name, f"{len(again)} were sent again")
        lines = [
            f"request {call.number}, try {call.value['again'] + 1}: {call.outcome}: {call.value.get('fault')}"
            for call in again
            if call.outcome not in ("complete", "cancelled")
        ]
        return judged(self.name, lines, f"{len(again)} were, all whole", "were not whole in the end")


@dataclass(frozen=True, slots=True)
class Together:
    """So many requests were under way at one moment."""

    at_least: int

    @property
    def name(self) -> str:
        """What it demands."""
        return f"at least {self.at_least} requests were under way at once"

    def judge(self, story: Story) -> Finding:
        """Counts open calls at the beginning of each."""
        most, moves = 0, []
        for call in story.calls:
            moves += [(call.begun, 1), (call.ended if call.ended is not None else story.ended, -1)]
        now = 0
        for _, change in sorted(moves):
            now += change
            most = max(most, now)
        said = f"at most {most} were"
        return passed(self.name, said) if most >= self.at_least else failed(self.name, said)


@dataclass(frozen=True, slots=True)
class EventsHealthy:
    """At the end every replica says that its part in the KV events is whole."""

    name: str = "the index is fed and whole in every replica at the end"

    def judge(self, story: Story) -> Finding:
        """Looks at the last status of each."""
        last = {name: story.statuses[name][-1].value for name in story.members if name in story.statuses}
        if set(last) != set(story.members):
            return unknown(self.name, f"only {', '.join(last) or 'none'} of the replicas showed a status")
        lines = [
            f"{name} says {page['events']}" for name, page in last.items() if page["events"] != "healthy"
        ]
        return judged(self.name, lines, f"{len(last)} replicas say healthy", "replicas say otherwise")


@dataclass(frozen=True, slots=True)
class PrefixesFound:
    """After the last heal so large a share of picks finds a part of its prefix on a worker."""

    share: float

    @property
    def name(self) -> str:
        """What it demands."""
        return f"at least {self.share:.0%} of picks after the heal find their prefix"

    def judge(self, story: Story) -> Finding:
        """Reads the replicas' counters."""
        grown = {"hit": 0.0, "miss": 0.0}
        for series in story.counters.values():
            before = [counters for t, counters in series if t <= story.healed]
            after = [counters for t, counters in series if t > story.healed]
            if not after:
                continue
            for result in grown:
                key = f'{_REQUESTS}{{result="{result}"}}'
                had, now = (before[-1].get(key, 0.0) if before else 0.0), after[-1].get(key, 0.0)
                grown[result] += now - had if now >= had else now
        total = sum(grown.values())
        if total < 10:
            return unknown(self.name, f"{total:g} picks after the heal are too few to judge")
        said = f"{grown['hit']:g} of {total:g}"
        good = grown["hit"] >= self.share * total
        return passed(self.name, said, **grown) if good else failed(self.name, said, (), **grown)


@dataclass(frozen=True, slots=True)
class SchemaFollows:
    """While a replica of the older version lives its schema is written; in the end the newer one is, by all."""

    older: int
    newer: int

    @property
    def name(self) -> str:
        """What it demands."""
        return f"schema {self.older} is written until the last replica reads {self.newer}, then {self.newer}"

    def judge(self, story: Story) -> Finding:
        """Compares when replicas wrote what with when the last one was upgraded."""
        upgrades = [each for each in story.faults if each.kind == "upgrade" and each.seen is not None]
        if len(upgrades) < len(story.header["replicas"]):
            return unknown(self.name, f"only {len(upgrades)} replicas were upgraded")
        last = max(each.begun for each in upgrades)
        lines, ends = [], {}
        for replica, series in story.counters.items():
            for t, counters in series:
                written = int(counters.get(_SCHEMA, 0))
                ends[replica] = written
                if t < last and written > self.older:
                    lines.append(f"{replica} wrote {written} at {t - story.begun:.2f} s, too early")
        lines += [
            f"{replica} writes {written} at the end"
            for replica, written in ends.items()
            if written != self.newer
        ]
        return judged(self.name, lines, f"{len(ends)} replicas did so", "times it was not so")


@dataclass(frozen=True, slots=True)
class PoisonRefused:
    """Every poisoned body was answered: served, or refused with an explicit status; none hung, none broke the gate."""

    allowed: frozenset[int] = EXPLICIT | {200}
    name: str = "every body that is no request is answered explicitly"

    def judge(self, story: Story) -> Finding:
        """Reads the evidence of the fault."""
        told = [each for each in story.faults if each.kind == "poison-bodies" and "answers" in each.proof]
        if not told:
            return unknown(self.name, "no poisoned body was sent")
        answers = {name: status for each in told for name, status in each.proof["answers"].items()}
        lines = [f"{name}: {status or 'no answer'}" for name, status in self._wrong(answers)]
        return judged(
            self.name, lines, f"{len(answers)} bodies: {answers}", f"of {len(answers)} bodies were not"
        )

    def _wrong(self, answers: dict[str, int]) -> Iterator[tuple[str, int]]:
        return ((name, status) for name, status in answers.items() if status not in self.allowed)
