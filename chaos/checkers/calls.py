"""Checks of what clients saw: answered or refused explicitly, whole unless a stream was held, picked in time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.story import Call, FaultLife, Story
from chaos.verdict import Finding, failed, judged, passed, unknown

EXPLICIT = frozenset({400, 404, 413, 429, 503})
"""Statuses by which a picker refuses on purpose."""
STATUS_SECONDS = 0.5
"""From one look at a replica's status to the next: how it held a stream is known that well."""
DARK_SECONDS = 2.0
"""After a replica's return the gateway asks for its health once a second before it sends it anything."""
_RECOVERED_SECONDS = 2.0
_BUCKETS = "endpoint_picker_decision_duration_seconds_bucket"


def nearest_rank(values: Iterable[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _line(call: Call, story: Story) -> str:
    at = f"{call.begun - story.begun:.2f} s"
    told = call.value.get("fault") or call.value.get("status") or "no answer"
    return f"request {call.number}, sent at {at}: {call.outcome or 'never ended'}: {told}"


@dataclass(frozen=True, slots=True)
class Answered:
    """Every request is answered or refused explicitly; none hangs.

    Picks that a dying replica had in hand may fail, where the gateway fails closed: at most ``lost`` of them, all sent
    within ``around`` seconds of the fault that took the replica or gateway away.
    """

    lost: int = 0
    around: float = 3.0
    refused: int = 0
    """How many explicit refusals are as they should be."""
    dark: bool = False
    """Whether the gateway may refuse what is sent while no replica runs, and until it has looked again."""

    @property
    def name(self) -> str:
        """What it demands."""
        said = "every request is answered or refused explicitly, none hangs"
        said += " (but where no replica runs)" if self.dark else ""
        return said + (f" (at most {self.lost} picks in hand lost)" if self.lost else "")

    def judge(self, story: Story) -> Finding:
        """A call without an end, a timeout or an inexplicit failure breaks it."""
        if not story.calls:
            return unknown(self.name, "no request was sent")
        counts = Counter(call.outcome or "never ended" for call in story.calls)
        if self.dark:
            counts["refused in the dark"] = sum(self._in_the_dark(call, story) for call in story.calls)
        hung = [call for call in story.calls if call.ended is None or call.outcome == "timeout"]
        lit = [call for call in story.calls if not (self.dark and self._in_the_dark(call, story))]
        explicit = [c for c in lit if c.outcome == "refused" and c.value.get("status") in EXPLICIT]
        bad = [c for c in lit if c.outcome in ("refused", "unreachable") and c not in explicit]
        excused = [call for call in bad if self._near(call, story)][: self.lost]
        wrong = [*hung, *(call for call in bad if call not in excused)]
        if len(explicit) > self.refused:
            wrong += explicit
        numbers = {**counts, "lost": len(excused), "calls": len(story.calls)}
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        lines = [_line(call, story) for call in wrong]
        good, bad_ones = (
            f"{len(story.calls)} requests: {said}",
            f"of {len(story.calls)} requests were not ({said})",
        )
        return judged(self.name, lines, good, bad_ones, **numbers)

    def _in_the_dark(self, call: Call, story: Story) -> bool:
        """Whether it was refused, by a status, and overlaps a time in which every replica was gone."""
        if call.outcome != "refused":
            return False
        gone = [
            [fault for fault in story.faults if fault.target == replica]
            for replica in story.header["replicas"]
        ]
        at = [call.begun, _end(call)]
        return any(all(any(f.covers(t, grace=DARK_SECONDS) for f in faults) for faults in gone) for t in at)

    def _near(self, call: Call, story: Story) -> bool:
        """Whether it was under way when a fault struck, or sent soon after."""
        return any(
            call.begun <= each.begun + self.around and _end(call) >= each.begun for each in story.faults
        )


def _end(call: Call) -> float:
    return math.inf if call.ended is None else call.ended


@dataclass(frozen=True, slots=True)
class Whole:
    """Responses are cut only where the stream hold allows it.

    A stream held to the end of the response ties the response to its replica: its death cuts it. With streams that end
    at the headers no death of a replica cuts any. ``by``: faults that cut by their nature (of engines, of the gateway).
    """

    by: tuple[str, ...] = ()
    """Targets, such as ``engine-0`` or ``envoy``, whose faults may cut what they carry."""

    @property
    def name(self) -> str:
        """What it demands."""
        return "responses are cut only where the stream hold allows it"

    def judge(self, story: Story) -> Finding:
        """Every cut response needs a fault that excuses it."""
        cut = [call for call in story.calls if call.outcome == "cut"]
        lines = [_line(call, story) for call in cut if not self._excused(call, story)]
        whole = sum(call.outcome == "complete" for call in story.calls)
        if not whole:
            return unknown(self.name, "no response came to its end, so nothing is known of cutting")
        good = f"{whole} responses whole" + (f", {len(cut)} cut as the hold allows" if cut else "")
        return judged(self.name, lines, good, "responses cut without a reason", cut=len(cut), whole=whole)

    def _excused(self, call: Call, story: Story) -> bool:
        for fault in story.faults:
            if not call.begun <= fault.begun <= _end(call) + 1.0 and not fault.covers(_end(call), grace=1.0):
                continue
            if fault.target in self.by:
                return True
            if fault.target in story.replicas and self._held(fault.target, call, story):
                return True
        return False

    def _held(self, replica: str, call: Call, story: Story) -> bool:
        """Whether that replica held the response's stream: it owned the booking, and held to the response."""
        owned = not call.booking or any(
            call.booking in view.bookings and view.bookings[call.booking].replica == replica
            for view in story.all_views()
        )
        statuses = story.statuses.get(replica, ())
        holds = [each.value["hold"] for each in statuses if each.t <= call.begun + STATUS_SECONDS]
        return owned and "response" in holds[-2:]


@dataclass(frozen=True, slots=True)
class PicksWithin:
    """The 99th percentile of the picker's decisions stays within a budget, while a fault is on.

    From the replicas' own histogram, so the bound counts from the next higher bucket limit. Where picks take longer
    even while nothing is wrong, the machine is too slow to tell.
    """

    ms: float
    during: str = ""
    """Kind of fault; empty: the whole run."""
    share: float = 0.99
    least: int = 20
    """Fewer decisions than this say nothing."""

    @property
    def name(self) -> str:
        """What it demands."""
        when = f" during {self.during}" if self.during else ""
        return f"picks within {self.ms:g} ms (p{100 * self.share:g}){when}"

    def judge(self, story: Story) -> Finding:
        """Adds up the histogram's growth over the fault's lives."""
        spans = [(f.begun, f.healed or story.ended) for f in story.faults if f.kind == self.during]
        if not self.during:
            spans = [(story.begun, story.ended)]
        if not spans:
            return unknown(self.name, f"no {self.during} in the history")
        total, bound = self._bound(story, spans)
        if total < self.least:
            return unknown(self.name, f"{total:g} decisions in that time are too few to judge")
        numbers = {"decisions": total, "p_ms": 1000 * bound if math.isfinite(bound) else None}
        text = f"{total:g} decisions, {100 * self.share:g} % within {1000 * bound:g} ms"
        if 1000 * bound <= self.ms:
            return passed(self.name, text, **numbers)
        calm, usual = self._bound(story, _undisturbed(story))
        if self.during and calm >= self.least and 1000 * usual > self.ms:
            return unknown(
                self.name, f"{text}; undisturbed within {1000 * usual:g} ms: the machine is too slow to tell"
            )
        return failed(self.name, text, (), **numbers)

    def _bound(self, story: Story, spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """How many decisions there were in these times, and within which time in seconds the share of them was made."""
        grown: Counter[float] = Counter()
        for series in story.counters.values():
            for begin, end in spans:
                grown.update(_growth(series, begin, end))
        total = grown.get(math.inf, 0)
        return total, next((limit for limit in sorted(grown) if grown[limit] >= self.share * total), math.inf)


def _undisturbed(story: Story) -> list[tuple[float, float]]:
    """The times before the first fault, and from some seconds after the last one."""
    begins = [each.begun for each in story.faults]
    return (
        [(story.begun, min(begins) - 1.0), (story.healed + _RECOVERED_SECONDS, story.ended)] if begins else []
    )


def _growth(series: Sequence[tuple[float, Mapping[str, float]]], begin: float, end: float) -> Counter[float]:
    before: dict[float, float] | None = None
    grown: Counter[float] = Counter()
    for t, counters in series:
        now = {_limit(name): value for name, value in counters.items() if name.startswith(_BUCKETS)}
        if before is not None and begin < t <= end + 1.0:
            fresh = now.get(math.inf, 0) < before.get(math.inf, 0)
            for limit, value in now.items():
                grown[limit] += int(value - (0 if fresh else before.get(limit, 0)))
        before = now
    return grown


def _limit(name: str) -> float:
    text = name.partition('le="')[2].partition('"')[0]
    return math.inf if text == "+Inf" else float(text)


@dataclass(frozen=True, slots=True)
class CallsMade:
    """Enough requests were sent for the run to mean something."""

    at_least: int

    @property
    def name(self) -> str:
        """What it demands."""
        return f"at least {self.at_least} requests were sent"

    def judge(self, story: Story) -> Finding:
        """Counts calls."""
        count = len(story.calls)
        said = f"{count} requests were sent"
        return passed(self.name, said) if count >= self.at_least else failed(self.name, said)


@dataclass(frozen=True, slots=True)
class FaultSeen:
    """A fault took effect and was healed, by its own proof from the outside."""

    kind: str
    target: str = ""
    lasting: float = 0.0
    """Seconds that it must have been on."""

    @property
    def name(self) -> str:
        """What it demands."""
        where = f" of {self.target}" if self.target else ""
        return f"{self.kind}{where} was seen to take effect, and healed"

    def judge(self, story: Story) -> Finding:
        """Looks for a proven life of the fault."""
        lives = [f for f in story.faults if f.kind == self.kind and self.target in ("", f.target)]
        proven = [f for f in lives if f.seen is not None and f.healed is not None]
        long = [f for f in proven if (f.healing or f.healed or 0) - (f.seen or 0) >= self.lasting]
        if not long or len(proven) < len(lives):
            return failed(
                self.name, f"{len(lives)} begun, {len(proven)} proven and healed, {len(long)} long enough"
            )
        said = "; ".join(f"{f.target}{_proof(f)}" for f in long)
        return passed(self.name, said)


def _proof(fault: FaultLife) -> str:
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fault.proof.items())
    return f": {said}"[:300] if said else ""


@dataclass(frozen=True, slots=True)
class InFlight:
    """When the fault struck, so many requests were under way."""

    kind: str
    at_least: int
    on: str = ""
    """``target``: only those whose booking the fault's replica owned at the last look before."""

    @property
    def name(self) -> str:
        """What it demands."""
        whose = " of its own" if self.on == "target" else ""
        return f"at least {self.at_least} requests{whose} were under way when {self.kind} struck"

    def judge(self, story: Story) -> Finding:
        """Counts calls open at the fault's proof."""
        faults = [f for f in story.faults if f.kind == self.kind]
        if not faults:
            return failed(self.name, f"no {self.kind} in the history")
        counts = [self._count(fault, story) for fault in faults]
        said = f"{max(counts)} were"
        return passed(self.name, said) if max(counts) >= self.at_least else failed(self.name, said)

    def _count(self, fault: FaultLife, story: Story) -> int:
        at = fault.begun
        if self.on == "target":
            views = [v for v in story.all_views() if v.told <= at]
            last = max(views, key=lambda v: v.told, default=None)
            return sum(b.replica == fault.target for b in last.bookings.values()) if last else 0
        return sum(call.begun <= at < _end(call) for call in story.calls)


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter of the replicas rose by so much: something interesting really happened."""

    series: str
    """The series' name, or its beginning: ``picker_picks_degraded_total``."""
    at_least: float = 1
    label: str = ""
    """Text that the series must contain."""
    at_most: float = field(default=math.inf)

    @property
    def name(self) -> str:
        """What it demands."""
        most = f" and at most {self.at_most:g}" if math.isfinite(self.at_most) else ""
        return f"{self.series}{self.label} rose by at least {self.at_least:g}{most}"

    def judge(self, story: Story) -> Finding:
        """Adds up the growth over all replicas and lives."""
        total, seen = 0.0, False
        for series in story.counters.values():
            before: dict[str, float] | None = None
            for _, counters in series:
                now = {k: v for k, v in counters.items() if k.startswith(self.series) and self.label in k}
                if before is not None:
                    total += sum(max(0.0, v - before.get(k, 0.0)) for k, v in now.items())
                before, seen = now, True
        if not seen:
            return unknown(self.name, "no replica showed its counters")
        said = f"it rose by {total:g}"
        good = self.at_least <= total <= self.at_most
        return passed(self.name, said, rose=total) if good else failed(self.name, said, rose=total)
