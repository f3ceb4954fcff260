"""Checks of bookings against what engines truly carry: exact, bounded, one for each stream."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from chaos.checkers import TRUTH
from chaos.checkers.bounds import (
    REPORTED_SECONDS,
    SLACK_SECONDS,
    VISIBLE_SECONDS,
    Clock,
)
from chaos.story import FOREVER, Booked, Carried, Story, View
from chaos.verdict import Finding, judged, unknown

ENDING_SECONDS = 1.0
"""A caller that hangs up ends its booking a moment before the engine notices."""
DRAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class SumsExact:
    """In every look at every view, the sums by worker are the sums of its bookings."""

    name: str = "sums are exact: by worker, in every look, they are the sums of the bookings"

    def judge(self, story: Story) -> Finding:
        """Adds up each look."""
        lines, looks = [], 0
        for view in story.all_views():
            looks += 1
            added: dict[str, tuple[int, int, int]] = {}
            for each in view.bookings.values():
                tokens, blocks, requests = added.get(each.worker, (0, 0, 0))
                added[each.worker] = (
                    tokens + each.prefill_tokens, blocks + each.blocks, requests + each.requests,
                )  # fmt: skip
            for worker in added.keys() | view.sums.keys():
                told, truly = view.sums.get(worker, (0, 0, 0)), added.get(worker, (0, 0, 0))
                if told != truly:
                    at = view.told - story.begun
                    lines.append(
                        f"{view.replica} at {at:.2f} s says {told} of {worker}; its bookings are {truly}"
                    )
        if not looks:
            return unknown(self.name, "no view was seen")
        return judged(self.name, lines, f"exact in {looks} looks", "sums differ", looks=looks)


@dataclass(frozen=True, slots=True)
class NoLiveBookingGone:
    """What an engine carries is booked in every view that can know of it, and stays so until it ends.

    Three things are not held against a view, and each is something that it could not know:

    - Reports count requests, they name none. While a fault keeps the gateway's log from telling which ones run, and
      `REPORTED_SECONDS` beyond, a view may take one for another: evidence ends the oldest. It must still book at least
      as many on each worker as that one carries, so no load is lost by it, only a name. (Without this, 6 to 9 requests
      of 150 fail `gateway_stands_still`, each gone for a second or two until the log names it again.) A replica that is
      frozen may be the one that the log goes to, until the gateway notices (`MISLOGGED_SECONDS`).
    - Work that goes on at a worker which left the pool: leaving ends its bookings for good.
    - What was never shown, while the way that its owner's word takes is cut, and while a view is built anew after it.
      What a view has shown, it may lose only in the `REBUILD_SECONDS` after an epoch's or its own beginning.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    name: str = "no live booking is gone: what an engine carries is booked in every view"

    def judge(self, story: Story) -> Finding:
        """Looks for work that a view once showed and lost, and for work that it never showed."""
        lives = {each.booking: each for each in story.carried if each.booking}
        if not lives or not story.views:
            return unknown(self.name, "no work of an engine, or no view, was seen")
        clock, owners = Clock(story), owners_of(story)
        lines = [
            line
            for replica, views in story.views.items()
            for line in _missing(story, clock, replica, views, owners)
        ]
        return judged(
            self.name, lines, f"{len(lives)} requests, {sum(map(len, story.views.values()))} looks",
            "requests were carried but not booked",
        )  # fmt: skip


def _missing(
    story: Story, clock: Clock, replica: str, views: list[View], owners: Mapping[str, str]
) -> Iterator[str]:
    """One line for each request that one replica's view missed while it was carried."""
    asked = [view.asked for view in views]
    for carried in story.carried:
        if not carried.booking or _left(story, carried):
            continue
        seen_at: float | None = None
        for view in islice(views, bisect_left(asked, carried.since), None):
            if view.told > carried.until - ENDING_SECONDS:
                break
            if _shows(view, carried):
                seen_at = view.told
            elif clock.unheard(view.told) and _as_many(story, view, carried.worker):
                continue
            elif _to_be_known(clock, view, carried, seen_at, owners.get(carried.booking, "")):
                how = "never" if seen_at is None else f"last at {seen_at - story.begun:.2f} s"
                yield (
                    f"{replica} at {view.told - story.begun:.2f} s does not show {carried.booking} on {carried.worker}"
                    f" (carried since {carried.since - story.begun:.2f} s; shown {how})"
                )
                break


def _as_many(story: Story, view: View, worker: str) -> bool:
    """Whether the view books as many requests on a worker as that one carried around that look."""
    carried = sum(
        each.since <= view.asked - VISIBLE_SECONDS and view.told < each.until for each in story.on(worker)
    )
    return view.sums.get(worker, (0, 0, 0))[2] >= carried


def _left(story: Story, carried: Carried) -> bool:
    """Whether its worker left the pool while it ran: that ends its booking for good, whatever the engine does."""
    return any(
        fault.kind == "leave"
        and story.workers.get(fault.target) == carried.worker
        and fault.begun <= carried.until
        and carried.since <= (FOREVER if fault.healed is None else fault.healed)
        for fault in story.faults
    )


def _shows(view: View, carried: Carried) -> bool:
    if carried.booking in view.bookings:
        return True
    return any(each.request == carried.booking for each in view.bookings.values())


def _to_be_known(clock: Clock, view: View, carried: Carried, seen_at: float | None, owner: str) -> bool:
    if clock.rebuilding(view.replica, view.told):
        return False
    if seen_at is not None:
        return True
    if clock.blind(view.replica, view.told, owner=owner):
        return False
    return view.asked > carried.since + VISIBLE_SECONDS + SLACK_SECONDS


@dataclass(frozen=True, slots=True)
class NoneOutlivesItsWork:
    """A booking is gone soon after its work: where no engine carries it, it is in no view after the bound."""

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    seconds: float = REPORTED_SECONDS
    """From the end of the work, from the owner's loss, or from the heal: whichever came last."""
    slack: float = SLACK_SECONDS

    @property
    def name(self) -> str:
        """What it demands."""
        return f"no booking outlives its work by more than {self.seconds:g} s (+{self.slack:g} s)"

    def judge(self, story: Story) -> Finding:
        """Looks at every booking of every look whose work is over."""
        if not story.views:
            return unknown(self.name, "no view was seen")
        clock, lives, first = Clock(story), story.lives_of(), first_seen(story)
        longest, lines, told = 0.0, [], set()
        for view in story.all_views():
            for booking in view.bookings.values():
                ended = _work_ended(booking, lives, first)
                if ended >= view.asked:
                    continue
                since = clock.since(view, booking.replica, ended)
                over = 0.0 if since is None else view.asked - since
                longest = max(longest, over)
                if over > self.seconds + self.slack and (view.replica, booking.id) not in told:
                    told.add((view.replica, booking.id))
                    lines.append(
                        f"{view.replica} at {view.asked - story.begun:.2f} s still shows {booking.id} ({booking.state},"
                        f" {booking.cause}, of {booking.owner}) {over:.1f} s after its work"
                    )
        good = f"the longest stayed {longest:.2f} s"
        return judged(
            self.name, lines, good, "bookings outlived their work", longest_seconds=round(longest, 3)
        )


def _work_ended(booking: Booked, lives: Mapping[str, list[Carried]], first: Mapping[str, float]) -> float:
    """When an engine last carried it; for one that never got to an engine: when it was first seen."""
    works = lives.get(booking.request, ())
    here = [each.until for each in works if each.worker == booking.worker] or [each.until for each in works]
    return max(here, default=first[booking.id])


@dataclass(frozen=True, slots=True)
class OneActiveEach:
    """At most one active booking for each live stream, in every view."""

    name: str = "at most one active booking for each live stream"

    def judge(self, story: Story) -> Finding:
        """Counts active bookings by the id that the engine knows."""
        if not story.views:
            return unknown(self.name, "no view was seen")
        lines = []
        for view in story.all_views():
            active = Counter(each.request for each in view.bookings.values() if each.state == "active")
            for request, count in active.items():
                if count > 1:
                    at = view.told - story.begun
                    lines.append(f"{view.replica} at {at:.2f} s shows {count} active bookings of {request}")
        return judged(self.name, lines, "never more than one", "streams with several")


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """Once nothing is sent any more and all is answered, no view books anything."""

    within: float = REPORTED_SECONDS + SLACK_SECONDS

    @property
    def name(self) -> str:
        """What it demands."""
        return f"nothing is booked {self.within:g} s after the last answer"

    def judge(self, story: Story) -> Finding:
        """Looks at the last look of each replica."""
        if not story.views or not set(story.members) <= set(story.views):
            return unknown(
                self.name, f"only {', '.join(story.views) or 'none'} of the replicas showed a view"
            )
        last = {name: story.views[name][-1] for name in story.members}
        lines = [
            f"{name} still shows {each.id} on {each.worker}, {each.state} {each.cause or ''} of {each.owner}"
            for name, view in last.items()
            for each in view.bookings.values()
            if not _carried_now(story, each)
        ]
        idle = max([each.until for each in story.carried if each.until < story.ended], default=story.begun)
        waited = story.ended - max(idle, story.healed)
        if lines and waited < self.within:
            return unknown(
                self.name, f"the run ended {waited:.1f} s after the last work, too soon to tell", lines
            )
        return judged(self.name, lines, "every view is empty at the end", "bookings are left")


def _carried_now(story: Story, booking: Booked) -> bool:
    return any(each.booking == booking.request for each in story.carried_at(booking.worker, story.ended))


def first_seen(story: Story) -> Mapping[str, float]:
    """Booking id -> when any view first showed it."""
    found: dict[str, float] = {}
    for view in story.all_views():
        for id_ in view.bookings:
            found[id_] = min(found.get(id_, view.asked), view.asked)
    return found


def owners_of(story: Story) -> Mapping[str, str]:
    """The engine's id of a booking -> the replica that first owned it."""
    found: dict[str, tuple[float, str]] = defaultdict(lambda: (float("inf"), ""))
    for view in story.all_views():
        for each in view.bookings.values():
            found[each.request] = min(found[each.request], (view.asked, each.replica))
    return {id_: owner for id_, (_, owner) in found.items()}
