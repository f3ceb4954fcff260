"""What other ways of counting would have booked, had they met the same requests and the same deaths.

``isolated``: each replica knows its own requests only. ``stream-bound``: each replica tells the others of a booking
and of its end by messages that are sent once and never asked for; a booking ends with its stream at its owner; what an
owner that died told is believed for 300 s; a replica that starts knows nothing. Both from the same history: who picked
what where, when the engine began and ended it, who was dead or could not speak when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from chaos.checkers.bookings import owners_of
from chaos.checkers.bounds import touches_plane
from chaos.story import FOREVER, JOINS, LEAVES, Story

EXPIRY_SECONDS = 300.0
STEP_SECONDS = 0.05
LONGEST_GAP = 1.0
"""Between two looks of a view; past it nobody knows what it showed, and the time is not counted."""


@dataclass(frozen=True, slots=True)
class Pick:
    """One booking as it truly was."""

    owner: str
    worker: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One booking in one replica's picture under some policy."""

    worker: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Errors:
    """Booking error of one policy over one history, in request-seconds, averaged over the replicas."""

    during: float
    """Within the history."""
    after: float = 0.0
    """Of what was still believed at its end, until that expires."""
    seconds: float = 0.0
    """How much of the history was counted."""

    @property
    def total(self) -> float:
        """Both."""
        return self.during + self.after


def picks_of(story: Story) -> list[Pick]:
    """Every booking that an engine carried, with the replica that made it."""
    owners = owners_of(story)
    return [
        Pick(owners[each.booking], each.worker, each.since, min(each.until, story.ended))
        for each in story.carried
        if each.booking in owners
    ]


def dead_spans(story: Story, replica: str) -> list[tuple[float, float]]:
    """When that replica's process did not run; one of a pod's name did not before its pod, nor does after it."""
    kinds = ("kill", "terminate", "restart")
    mine = [each for each in story.faults if each.target == replica]
    return [
        *(
            (each.begun, story.ended if each.healed is None else each.healed)
            for each in mine
            if each.kind in kinds
        ),
        *((story.begun, each.healed or story.ended) for each in mine if each.kind == JOINS),
        *((each.begun, story.ended) for each in mine if each.kind == LEAVES),
    ]


def mute_spans(story: Story, replica: str) -> list[tuple[float, float]]:
    """When messages of that replica, or to it, were lost: dead, frozen, or cut off from what carries them."""
    return [
        (each.begun, story.ended if each.healed is None else each.healed)
        for each in story.faults
        if each.target == replica or touches_plane(each, story, (replica,))
    ]


def _within(spans: Iterable[tuple[float, float]], t: float) -> bool:
    return any(begin <= t < end for begin, end in spans)


def isolated(story: Story, replica: str) -> list[Entry]:
    """Own requests, as long as the process that picked them lives."""
    return [_own(pick, dead_spans(story, replica)) for pick in picks_of(story) if pick.owner == replica]


def stream_bound(story: Story, replica: str) -> list[Entry]:
    """Own requests, and those that others told of, until told of their end or expired."""
    mine, found = mute_spans(story, replica), isolated(story, replica)
    dead = dead_spans(story, replica)
    for pick in picks_of(story):
        if pick.owner == replica:
            continue
        theirs = mute_spans(story, pick.owner)
        if _within(mine, pick.begun) or _within(theirs, pick.begun):
            continue  # the message was lost, and nobody asks for it
        lost = _within(theirs, pick.ended) or _within(mine, pick.ended) or _died(story, pick)
        end = pick.begun + EXPIRY_SECONDS if lost else pick.ended
        deaths = [begin for begin, _ in dead if pick.begun <= begin < end]
        found.append(Entry(pick.worker, pick.begun, min([end, *deaths])))
    return found


def _own(pick: Pick, dead: Sequence[tuple[float, float]]) -> Entry:
    deaths = [begin for begin, _ in dead if pick.begun <= begin < pick.ended]
    return Entry(pick.worker, pick.begun, min([pick.ended, *deaths]))


def _died(story: Story, pick: Pick) -> bool:
    """Whether its owner died while it ran: then nobody tells of its end."""
    return any(pick.begun <= begin < pick.ended for begin, _ in dead_spans(story, pick.owner))


POLICIES: Mapping[str, Callable[[Story, str], list[Entry]]] = {
    "isolated": isolated,
    "stream-bound": stream_bound,
}


def policy_errors(story: Story, policy: str) -> Errors:
    """Booking error of a policy over the time in which each replica lived, and after it until all has expired."""
    replicas = story.replicas
    during = after = seconds = 0.0
    for replica in replicas:
        entries = POLICIES[policy](story, replica)
        dead = dead_spans(story, replica)
        spent, counted = _integral(story, entries, dead)
        during, seconds = during + spent, seconds + counted
        after += sum(max(0.0, entry.end - story.ended) for entry in entries if entry.end > story.ended)
    return Errors(during / len(replicas), after / len(replicas), seconds / len(replicas))


def _integral(
    story: Story, entries: Sequence[Entry], dead: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    total = counted = 0.0
    workers = set(story.workers.values())
    changes = {worker: _steps(story, worker, entries) for worker in workers}
    for begin, end in _alive(story, dead):
        counted += end - begin
        total += sum(_area(steps, begin, end) for steps in changes.values())
    return total, counted


def _alive(story: Story, dead: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found, at = [], story.begun
    for begin, end in sorted(dead):
        found.append((at, begin))
        at = max(at, end)
    found.append((at, story.ended))
    return [(begin, end) for begin, end in found if end > begin]


def _steps(story: Story, worker: str, entries: Sequence[Entry]) -> list[tuple[float, int]]:
    """Booked minus carried as a step function: (from when, difference)."""
    moves: dict[float, int] = {}
    for entry in entries:
        if entry.worker == worker:
            moves[entry.begin] = moves.get(entry.begin, 0) + 1
            moves[entry.end] = moves.get(entry.end, 0) - 1
    for each in story.on(worker):
        moves[each.since] = moves.get(each.since, 0) - 1
        if each.until < FOREVER:
            moves[each.until] = moves.get(each.until, 0) + 1
    steps, now = [], 0
    for t in sorted(moves):
        now += moves[t]
        steps.append((t, now))
    return steps


def _area(steps: Sequence[tuple[float, int]], begin: float, end: float) -> float:
    total, at, now = 0.0, begin, 0
    for t, value in steps:
        if t > begin:
            total += abs(now) * (min(t, end) - at)
            at = min(t, end)
        now = value
        if t >= end:
            break
    return total + abs(now) * max(0.0, end - at)


def our_errors(story: Story) -> Errors:
    """Booking error of the replicas themselves: what their views showed, look by look, against what engines carried."""
    replicas = story.replicas
    workers = set(story.workers.values())
    during = seconds = after = 0.0
    for replica in replicas:
        views = story.views.get(replica, [])
        for view, following in pairwise(views):
            gap = following.at - view.at
            if gap > LONGEST_GAP:
                continue
            seconds += gap
            for worker in workers:
                booked = view.sums.get(worker, (0, 0, 0))[2]
                during += gap * abs(booked - len(story.carried_at(worker, view.at)))
        if views and replica in story.members:
            last = views[-1]
            left = sum(sums[2] for sums in last.sums.values())
            after += left * EXPIRY_SECONDS  # nothing is left at the end of a run that passes
    return Errors(during / len(replicas), after / len(replicas), seconds / len(replicas))
