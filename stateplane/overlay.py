"""A replica's own word, laid over its view until the plane's feed has brought the same. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from stateplane.booking import Booking, Version
from stateplane.view import View


class Overlay:
    """Keeps each own word in the view until the view has reached the version at which the plane took it in.

    An answer arrives before the change that it caused: without this, a booking would vanish in between, and an ended
    one come back. At most ``capacity`` words wait; past it the oldest is let go. ``lifted(id, now)`` hears of each.
    """

    def __init__(self, view: View, *, capacity: int, lifted: Callable[[str, float], None]) -> None:
        self._view = view
        self._lifted = lifted
        self._capacity = capacity
        self._waiting: OrderedDict[str, Version] = OrderedDict()
        self._unversioned: OrderedDict[str, None] = OrderedDict()
        self._beaten: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, booking_id: str) -> bool:
        return booking_id in self._waiting or booking_id in self._unversioned or booking_id in self._beaten

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unversioned) + len(self._beaten)

    def begin(self, booking: Booking, now: float) -> None:
        """`lay`, of an id on which nothing was said before."""
        self._view.lay(booking, now)

    def lay(self, booking: Booking, now: float) -> None:
        """Count this until told otherwise."""
        self._drop(booking.id)
        self._view.lay(booking, now)

    def hide(self, booking_id: str, now: float) -> None:
        """Count nothing for this id until told otherwise."""
        self._drop(booking_id)
        self._view.hide(booking_id, now)

    def lift(self, booking_id: str, now: float) -> None:
        """The plane's word counts at once."""
        self._drop(booking_id)
        self._view.lift(booking_id, now)

    def lift_at(self, booking_id: str, version: Version | None, now: float) -> None:
        """The plane's word counts once the view has reached that version; None: what the next heartbeat says."""
        self._drop(booking_id)
        if not self._view.laid(booking_id):
            return
        if version is None:
            self._unversioned[booking_id] = None
        else:
            self._waiting[booking_id] = version
        self.caught_up(now)

    def beating(self) -> None:
        """A heartbeat is being sent: what was answered before it, is in the plane by the version that it answers."""
        self._beaten.update(self._unversioned)
        self._unversioned.clear()

    def beat(self, version: Version, now: float) -> None:
        """It was answered."""
        for booking_id in self._beaten:
            self._waiting[booking_id] = version
        self._beaten.clear()
        self.caught_up(now)

    def caught_up(self, now: float) -> None:
        """The view moved on: let go of every word that it has reached."""
        version = self._view.version
        while self._waiting:
            booking_id, awaited = next(iter(self._waiting.items()))
            if awaited.epoch == version.epoch and awaited > version:
                break
            del self._waiting[booking_id]
            if awaited.epoch != version.epoch and self._view.hidden(booking_id):
                self._view.forget(booking_id, now)
            self._view.lift(booking_id, now)
            self._lifted(booking_id, now)
        while len(self) > self._capacity:
            oldest, _ = (self._waiting or self._beaten or self._unversioned).popitem(last=False)
            if self._view.hidden(oldest):
                self._view.discard(oldest, now)
            self._view.lift(oldest, now)

    def _drop(self, booking_id: str) -> None:
        for words in (self._waiting, self._unversioned, self._beaten):
            if words:
                words.pop(booking_id, None)
