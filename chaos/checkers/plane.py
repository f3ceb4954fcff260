"""Checks of the plane itself, and of what a view keeps while the plane is away, slow, or begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from chaos.checkers import AUDIT, TRUTH
from chaos.checkers.bookings import ENDING_SECONDS
from chaos.checkers.bounds import REBUILD_SECONDS, SLACK_SECONDS, VISIBLE_SECONDS, Clock
from chaos.history import Record
from chaos.story import FaultLife, Story, View
from chaos.verdict import Finding, judged, unknown

LAPSED = "picker_plane_backend_lapsed_total"
LATE = "late-operations"


@dataclass(frozen=True, slots=True)
class PlaneExact:
    """On the plane's server itself, the sums by worker are the sums of the bookings that it holds.

    Asked past the replicas when the scenario has played, load still running, and again when all is quiet.
    """

    needs: ClassVar[frozenset[str]] = frozenset({AUDIT})

    name: str = "the plane's own sums are the sums of the bookings that it holds"

    def judge(self, story: Story) -> Finding:
        """Compares each audit that the server answered; the last one must have been."""
        told = [each for each in story.audits if each.type == "ok"]
        if not story.audits or story.audits[-1].type != "ok":
            why = story.audits[-1].value["fault"] if story.audits else "nobody asked"
            return unknown(self.name, f"the plane's server did not answer in the end: {why}")
        lines = [line for each in told for line in _differences(each, story.begun)]
        most = max(len(each.value["ids"]) for each in told)
        good = f"exact in {len(told)} audits, of up to {most} bookings"
        return judged(self.name, lines, good, "sums of the plane differ", audits=len(told), bookings=most)


def _differences(audit: Record, begun: float) -> Iterator[str]:
    sums, booked = audit.value["sums"], audit.value["booked"]
    for worker in sums.keys() | booked.keys():
        told, truly = sums.get(worker, [0, 0, 0]), booked.get(worker, [0, 0, 0])
        if told != truly:
            yield f"at {audit.t - begun:.2f} s the plane says {told} of {worker}; the bookings there are {truly}"


@dataclass(frozen=True, slots=True)
class LeasesKept:
    """No lease falls while its replica lives: what the plane's absence takes of the time is given back.

    For runs in which no replica is touched. Where the suite stood still, replicas may have, too: then nobody can tell.
    """

    name: str = "no lease of a living replica falls"

    def judge(self, story: Story) -> Finding:
        """Looks for heartbeats that found somebody silent, and for members that others no longer know."""
        touched = [each for each in story.faults if each.target in story.header["replicas"]]
        if touched or not story.counters:
            return unknown(self.name, "a replica was touched on purpose, or none showed its counters")
        lines = [*_lapses(story), *_missed_members(story)]
        if lines and any(end - begin > VISIBLE_SECONDS for begin, end in story.stalls):
            return unknown(self.name, "leases fell, but the machine stood still, too", lines)
        return judged(self.name, lines, "none fell", "times leases fell of replicas that nobody touched")


def _lapses(story: Story) -> Iterator[str]:
    for replica, series in story.counters.items():
        for (_, before), (t, now) in pairwise(series):
            fell = now.get(LAPSED, 0) - before.get(LAPSED, 0)
            if fell > 0:
                yield f"{replica} found {fell:g} silent by {t - story.begun:.2f} s"


def _missed_members(story: Story) -> Iterator[str]:
    """What each replica was told last of who is a member; an answer that was lost told nobody of a lapse."""
    for replica, states in story.statuses.items():
        for before, now in pairwise(states):
            gone = set(before.value["members"]) - set(now.value["members"])
            if gone:
                yield f"{replica} at {now.t - story.begun:.2f} s misses {', '.join(sorted(gone))}"


@dataclass(frozen=True, slots=True)
class NothingForgotten:
    """While a fault is on, and while views are built anew after it, none loses what it showed and what still runs.

    No time is exempt: a view keeps what it knew until it knows better.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    during: str
    """Kind of fault."""

    @property
    def name(self) -> str:
        """What it demands."""
        return f"no view forgets during {self.during} what is still carried"

    def judge(self, story: Story) -> Finding:
        """Compares each look with the one before it, for what was carried well beyond both."""
        faults = [each for each in story.faults if each.kind == self.during]
        if not faults:
            return unknown(self.name, f"no {self.during} in the history")
        lines, kept = [], 0
        until = {each.booking: each.until for each in story.carried if each.booking}
        for replica, views in story.views.items():
            for before, now in pairwise(views):
                if not _within(faults, replica, before, now, story):
                    continue
                for id_ in before.bookings:
                    if until.get(id_, 0.0) < now.told + ENDING_SECONDS:
                        continue
                    kept += id_ in now.bookings
                    if id_ not in now.bookings:
                        at = now.told - story.begun
                        lines.append(f"{replica} at {at:.2f} s no longer shows {id_}, which is still carried")
        if not kept and not lines:
            return unknown(self.name, "no view showed anything then that went on")
        return judged(
            self.name, lines, f"{kept} times looked for and found", "bookings were forgotten", kept=kept
        )


def _within(faults: list[FaultLife], replica: str, before: View, now: View, story: Story) -> bool:
    grace = REBUILD_SECONDS + SLACK_SECONDS
    return any(
        each.target != replica
        and each.begun <= now.told
        and before.asked <= (story.ended if each.healed is None else each.healed) + grace
        for each in faults
    )


@dataclass(frozen=True, slots=True)
class LateChangesNothing:
    """What a message of an older term says of a booking is in no view: it came too late."""

    name: str = "operations of an older term change nothing"

    def judge(self, story: Story) -> Finding:
        """Looks for the amount that `chaos.injectors.late` asked for, well after the message was sent."""
        faults = [each for each in story.faults if each.kind == LATE and each.seen is not None]
        lines, looks, clock = [], 0, Clock(story)
        for fault in faults:
            ids = set(fault.proof["ids"])
            for view in story.all_views():
                if view.asked < (fault.seen or 0.0) + 0.2 or clock.starved(view.asked):
                    continue
                for id_ in ids & view.bookings.keys():
                    looks += 1
                    if view.bookings[id_].requests == fault.proof["requests"]:
                        at = view.told - story.begun
                        lines.append(f"{view.replica} at {at:.2f} s shows {id_} as the late operation has it")
        if not looks:
            return unknown(self.name, "nothing of that kind was sent, or nothing was left to look at")
        return judged(self.name, lines, f"in {looks} looks nothing came of it", "looks show it")
