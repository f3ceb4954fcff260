"""Bookings shared late: a plane in virtual time, and one replica's hand in it.

Order and words are those of the state plane: changes are numbered, every replica folds all of them into its
`stateplane.view.View`, and what it said itself counts for it at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from picker.bench.quality.world import World
from stateplane.booking import Amount, Booked, Booking, Cause, Gone, Owner, Snapshot, Version
from stateplane.view import View


class Plane:
    """Passes every change to every hand, so many seconds later. ``shared`` False: to nobody (mode isolated)."""

    def __init__(self, world: World, *, staleness: float, shared: bool) -> None:
        self.shared = shared
        self._world, self._staleness = world, staleness
        self._hands: list[Hand] = []
        self._version = Version(1, 0)

    def join(self, hand: Hand) -> None:
        """One more replica, before anything was booked."""
        hand.view.reset(Snapshot(self._version, (), ()), self._world.now())
        self._hands.append(hand)

    def tell(self, said: Booking | str) -> None:
        """A booking stands so; or, by its id, it ended."""
        if not self.shared:
            return
        self._version = version = Version(1, self._version.number + 1)
        change = Gone(version, said, Cause.ENDED) if isinstance(said, str) else Booked(version, said)
        self._world.later(self._staleness, lambda: self._deliver(change))

    def _deliver(self, change: Booked | Gone) -> None:
        for hand in self._hands:
            hand.hear(change)


class Hand:
    """What `picker.underway` and a pick ask of a replica's hand in the plane; nothing here is ever lost or draining."""

    def __init__(self, name: str, world: World, plane: Plane) -> None:
        self.view = View()
        self._owner = Owner(name, "1")
        self._world, self._plane = world, plane
        self._mine: dict[str, Booking] = {}
        self._untold: dict[str, int] = {}
        """Own words that have not come back from the plane yet, by id."""
        plane.join(self)

    def book(self, booking_id: str, *, worker: str, amount: Amount) -> None:
        """It counts here from now on, elsewhere a little later."""
        self._say(Booking(booking_id, "", worker, self._owner, amount))

    def adjust(self, booking_id: str, amount: Amount) -> None:
        """It occupies so much now."""
        self._say(replace(self._mine[booking_id], amount=amount))

    def serve(self, booking_id: str, worker: str, amount: Amount) -> None:
        """Another worker served it."""
        self._say(replace(self._mine[booking_id], worker=worker, amount=amount))

    def end(self, booking_id: str, cause: Cause) -> None:
        """It is over."""
        del self._mine[booking_id]
        now = self._world.now()
        self.view.hide(booking_id, now)
        if not self._plane.shared:
            self.view.lift(booking_id, now)
            return
        self._untold[booking_id] = self._untold.get(booking_id, 0) + 1
        self._plane.tell(booking_id)

    def _say(self, booking: Booking) -> None:
        self._mine[booking.id] = booking
        self.view.lay(booking, self._world.now())
        if self._plane.shared:
            self._untold[booking.id] = self._untold.get(booking.id, 0) + 1
            self._plane.tell(booking)

    def hear(self, change: Booked | Gone) -> None:
        """A change came from the plane."""
        now = self._world.now()
        followed = self.view.apply(change, now)
        assert followed, "the plane numbers its changes without a gap"
        booking_id = change.id if isinstance(change, Gone) else change.booking.id
        if booking_id in self._untold:
            self._untold[booking_id] -= 1
            if not self._untold[booking_id]:
                del self._untold[booking_id]
                self.view.lift(booking_id, now)

    # asked of a hand, and never needed where no stream breaks

    def lose(self, booking_id: str, cause: Cause, *, seconds: float | None = None) -> None:
        """Let it drain."""
        raise AssertionError(f"no stream breaks in this world, yet {booking_id} was lost: {cause}")

    def alive(self, booking_ids: Iterable[str]) -> None:
        """Proof of life."""

    def end_foreign(self, booking_id: str, cause: Cause) -> None:
        """The end of another replica's booking."""
        raise AssertionError(f"no access log speaks in this world, yet {booking_id} ended: {cause}")

    def owns(self, booking_id: str) -> bool:
        """Whether it is this replica's."""
        return booking_id in self._mine
