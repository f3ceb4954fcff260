"""Do replicas know the attempts of one request for what they are?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chaos.checkers.bookings import first_seen
from chaos.checkers.bounds import SLACK_SECONDS, VISIBLE_SECONDS, Clock
from chaos.story import Booked, Story, View
from chaos.verdict import Finding, judged

KNOWN_SECONDS = VISIBLE_SECONDS + SLACK_SECONDS


@dataclass(frozen=True, slots=True)
class AttemptsKnown:
    """An attempt that drains while a newer one of its request stands is superseded, and never active again.

    Attempts are known by the request's key, which views show. Two that are active at the same time are a hedged
    request, and as they should be.
    """

    name: str = "an attempt that drains beside a newer one is superseded, and never active again"

    def judge(self, story: Story) -> Finding:
        """Follows the attempts of each key through every view."""
        clock, first = Clock(story), first_seen(story)
        joined: dict[str, set[str]] = defaultdict(set)
        lines, told = [], set()
        for replica, views in story.views.items():
            drains: dict[str, float] = {}
            superseded: dict[str, float] = {}
            for view in views:
                for id_ in view.bookings:
                    if view.bookings[id_].state != "draining":
                        drains.pop(id_, None)
                for older, newer in _outrun(view, first):
                    joined[older.key] |= {older.id, newer.id}
                    since = (
                        drains.setdefault(older.id, view.asked) if older.state == "draining" else view.asked
                    )
                    since = max(since, first[newer.id])
                    late = view.asked - since > KNOWN_SECONDS
                    returned = (
                        older.state == "active"
                        and view.asked - superseded.get(older.id, view.asked) > KNOWN_SECONDS
                    )
                    if older.superseded and older.state == "draining":
                        superseded.setdefault(older.id, view.asked)
                    elif (
                        (late or returned)
                        and older.id not in told
                        and not _excused(clock, view, older, newer)
                    ):
                        told.add(older.id)
                        how = "is active again" if returned else "drains, and is not superseded"
                        at = view.told - story.begun
                        lines.append(f"{replica} at {at:.2f} s: {older.id} {how}, though {newer.id} is newer")
        good = f"{len(joined)} requests were seen with several attempts"
        return judged(
            self.name, lines, good, "attempts were not known for what they are", requests=len(joined)
        )


def _outrun(view: View, first: Mapping[str, float]) -> Iterator[tuple[Booked, Booked]]:
    """Each older attempt with the newest one of its request."""
    attempts: dict[str, list[Booked]] = defaultdict(list)
    for booking in view.bookings.values():
        if booking.key:
            attempts[booking.key].append(booking)
    for several in attempts.values():
        if len(several) < 2:
            continue
        *older, newest = sorted(several, key=lambda each: (each.attempt, first[each.id]))
        yield from ((each, newest) for each in older)


def _excused(clock: Clock, view: View, older: Booked, newer: Booked) -> bool:
    owners = (older.replica, newer.replica)
    return any(clock.blind(view.replica, view.asked, owner=owner) for owner in owners)
