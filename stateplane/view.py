"""A replica's local copy of the plane: folded from a snapshot and the changes after it. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from stateplane.booking import (
    NOTHING,
    Amount,
    Booked,
    Booking,
    Change,
    Gap,
    Gone,
    Member,
    Owner,
    OwnerLapsed,
    Rebooked,
    Snapshot,
    State,
    Version,
)
from stateplane.tally import Listener, Tally


class View:
    """What every worker carries, as far as this replica knows.

    Three layers, the upper one wins for its id: own operations that the plane has not acknowledged yet (`lay`, `hide`),
    the plane's current epoch (`reset`, `apply`), and what an older epoch said of owners that have not booked again yet.
    The sums equal the sum of `bookings()` after every call.

    ``lease``: seconds after which an owner that did not join a new epoch is no longer believed to book again.
    ``owner``: whose bookings `own_load` sums.
    """

    def __init__(self, *, lease: float = 4.0, owner: Owner | None = None) -> None:
        self._lease = lease
        self._tally = Tally(owner)
        self._own: dict[str, Booking | None] = {}
        self._plane: dict[str, Booking] = {}
        self._owned: dict[Owner, set[str]] = {}
        self._kept: dict[str, Booking] = {}
        self._kept_of: dict[Owner, set[str]] = {}
        self._kept_until: dict[Owner, float | None] = {}
        self._deadlines: dict[str, float] = {}
        self._version = Version(0, 0)
        self._folded = False

    # what it says

    @property
    def version(self) -> Version:
        """The plane's version that is folded in; ``Version(0, 0)`` before the first snapshot."""
        return self._version

    @property
    def folded(self) -> bool:
        """Whether a snapshot was folded at all."""
        return self._folded

    def load(self, worker: str) -> Amount:
        """What is booked on a worker."""
        return self._tally.load(worker)

    def own_load(self, worker: str) -> Amount:
        """The part of it that this replica booked itself, and therefore knows exactly."""
        return self._tally.own(worker)

    def loads(self) -> Mapping[str, Amount]:
        """What is booked on every worker that has bookings: a live, read-only mapping."""
        return self._tally.loads

    def booking(self, booking_id: str) -> Booking | None:
        """The booking of that id, if it counts."""
        return self._tally.bookings.get(booking_id)

    def bookings(self) -> Mapping[str, Booking]:
        """All bookings that count, by id: a live, read-only mapping."""
        return self._tally.bookings

    def by_key(self, key: str) -> tuple[Booking, ...]:
        """The attempts of one request key that are known, by attempt."""
        return self._tally.by_key(key)

    def on(self, worker: str) -> tuple[Booking, ...]:
        """The bookings that count on one worker, in no order."""
        return self._tally.on(worker)

    def standing(self, booking_id: str) -> Booking | None:
        """What the plane's current epoch says of that id, without own operations laid over it."""
        return self._plane.get(booking_id)

    def owned(self, owner: Owner) -> tuple[Booking, ...]:
        """What the plane's current epoch holds for that owner."""
        return tuple(self._plane[id_] for id_ in self._owned.get(owner, ()))

    def deadline(self, booking_id: str) -> float | None:
        """Drain deadline of a booking by this replica's clock, where the plane said one."""
        return self._deadlines.get(booking_id)

    def kept(self) -> Mapping[str, Booking]:
        """What an older epoch said, of owners that have not booked again yet."""
        return dict(self._kept)

    def suspects(self, now: float) -> tuple[str, ...]:
        """Draining bookings past their deadline by this replica's clock. They count fully until the plane says gone."""
        return tuple(id_ for id_, deadline in self._deadlines.items() if deadline <= now)

    def listen(self, listener: Listener) -> None:
        """Tell ``listener(worker, requests, blocks, now)`` whenever a worker's sums changed."""
        self._tally.listen(listener)

    # what the plane says

    def reset(self, snapshot: Snapshot, now: float) -> None:
        """Fold a whole picture. Listeners and readers see the old sums, then the new ones, never anything between.

        A snapshot of a new epoch leaves the old epoch's bookings standing until their owner has booked again or its
        lease has passed. One of the same epoch that is older than the view is ignored.
        """
        same = snapshot.version.epoch == self._version.epoch
        if self._folded and same and snapshot.version < self._version:
            return
        before = self._plane.keys() | self._kept.keys()
        if self._folded and not same:
            self._keep_old(now)
        self._plane, self._owned, self._deadlines = {}, {}, {}
        for booking in snapshot.bookings:
            self._stand(booking, now)
        self._version, self._folded = snapshot.version, True
        dropped = self._unkept(snapshot.members, now)
        self._show(before | self._plane.keys() | set(dropped), now)

    def follows(self, version: Version) -> bool:
        """Whether that version is the next one."""
        return version.epoch == self._version.epoch and version.number == self._version.number + 1

    def apply(self, change: Change, now: float) -> bool:
        """Fold one change. False where it does not follow on what is known: take a snapshot and `reset`.

        A change that is folded already is True and changes nothing.
        """
        if isinstance(change, Gap) or not self._folded or change.version.epoch != self._version.epoch:
            return False
        if change.version <= self._version:
            return True
        if not self.follows(change.version):
            return False
        if isinstance(change, Booked):
            self._stand(change.booking, now)
            self._show_one(change.booking.id, now)
        elif isinstance(change, Gone):
            self._fall(change.id)
            self._drop_kept(change.id)
            self._show_one(change.id, now)
        else:
            self._show(list(self._fold(change, now)), now)
        self._version = change.version
        return True

    def members_seen(self, members: Sequence[Member], now: float) -> None:
        """Let go of what an older epoch said of owners that have booked again, or whose lease has passed."""
        self._show(self._unkept(members, now), now)

    # what this replica says before the plane does

    def lay(self, booking: Booking, now: float) -> None:
        """Count this until `lift`, whatever the plane says of its id."""
        self._own[booking.id] = booking
        self._tally.put_one(booking.id, booking, now)

    def hide(self, booking_id: str, now: float) -> None:
        """Count nothing for this id until `lift`: it ended here."""
        self._own[booking_id] = None
        self._tally.put_one(booking_id, None, now)

    def lift(self, booking_id: str, now: float) -> None:
        """The plane's word counts again."""
        if booking_id in self._own:
            del self._own[booking_id]
            below = self._plane.get(booking_id) or self._kept.get(booking_id)
            self._tally.put_one(booking_id, below, now)

    def laid(self, booking_id: str) -> bool:
        """Whether an own word on this id stands over the plane's."""
        return booking_id in self._own

    def hidden(self, booking_id: str) -> bool:
        """Whether that word is that it ended."""
        return self._own.get(booking_id, NOTHING) is None

    def forget(self, booking_id: str, now: float) -> None:
        """An older epoch's word on this id no longer counts."""
        if self._drop_kept(booking_id):
            self._show((booking_id,), now)

    def discard(self, booking_id: str, now: float) -> None:
        """The plane's word on this id no longer counts until it says something new: it is known to be over."""
        self._fall(booking_id)
        self._drop_kept(booking_id)
        self._show((booking_id,), now)

    # the layers

    def _show_one(self, id_: str, now: float) -> None:
        if id_ not in self._own:  # else that stands over it
            self._tally.put_one(id_, self._plane.get(id_) or self._kept.get(id_), now)

    def _show(self, ids: Iterable[str], now: float) -> None:
        self._tally.put(((id_, self._effective(id_)) for id_ in ids), now)

    def _effective(self, id_: str) -> Booking | None:
        if id_ in self._own:
            return self._own[id_]
        return self._plane.get(id_) or self._kept.get(id_)

    def _fold(self, change: OwnerLapsed | Rebooked, now: float) -> Iterator[str]:
        """Change the plane's layer; yields the ids that may look different now."""
        match change:
            case OwnerLapsed(owner=owner):
                for id_ in tuple(self._owned.get(owner, ())):
                    if self._plane[id_].state is State.ACTIVE:
                        self._stand(_lapsed(self._plane[id_], change), now)
                        yield id_
                yield from self._drop_kept_of(owner)
            case Rebooked(owner=owner):
                yield from self._drop_kept_of(owner)

    def _stand(self, booking: Booking, now: float) -> None:
        id_, owner = booking.id, booking.owner
        self._fall(id_)
        self._drop_kept(id_)
        self._plane[id_] = booking
        owned = self._owned.get(owner)
        if owned is None:
            self._owned[owner] = {id_}
        else:
            owned.add(id_)
        if booking.drain_left is not None:
            self._deadlines[id_] = now + booking.drain_left

    def _fall(self, id_: str) -> None:
        self._deadlines.pop(id_, None)
        booking = self._plane.pop(id_, None)
        if booking is not None:
            _discard(self._owned, booking.owner, id_)

    # what an older epoch said

    def _keep_old(self, now: float) -> None:
        for booking in self._plane.values():
            self._kept[booking.id] = booking
            self._kept_of.setdefault(booking.owner, set()).add(booking.id)
        for owner in self._kept_of:
            self._kept_until[owner] = now + self._lease

    def _unkept(self, members: Sequence[Member], now: float) -> list[str]:
        """Ids let go. An owner that joined is waited for until it declares; one that did not, for its lease."""
        joined = {member.owner: member.rebooked for member in members}
        gone: list[str] = []
        for owner in tuple(self._kept_of):
            until = self._kept_until[owner]
            if joined.get(owner):
                gone.extend(self._drop_kept_of(owner))
            elif owner in joined:
                self._kept_until[owner] = None
            elif until is None:
                self._kept_until[owner] = now + self._lease
            elif until <= now:
                gone.extend(self._drop_kept_of(owner))
        return gone

    def _drop_kept_of(self, owner: Owner) -> list[str]:
        ids = list(self._kept_of.get(owner, ()))
        for id_ in ids:
            self._drop_kept(id_)
        return ids

    def _drop_kept(self, id_: str) -> bool:
        booking = self._kept.pop(id_, None)
        if booking is None:
            return False
        _discard(self._kept_of, booking.owner, id_)
        if booking.owner not in self._kept_of:
            self._kept_until.pop(booking.owner, None)
        return True


def _lapsed(booking: Booking, lapse: OwnerLapsed) -> Booking:
    superseded = booking.superseded or booking.outrun
    return replace(
        booking, state=State.DRAINING, cause=lapse.cause, superseded=superseded, drain_left=lapse.drain_left
    )


def _discard(sets: dict[Owner, set[str]], owner: Owner, id_: str) -> None:
    ids = sets[owner]
    ids.discard(id_)
    if not ids:
        del sets[owner]
