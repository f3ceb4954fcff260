"""The seam: what every state plane promises. The contract suite in ``stateplane.testing`` holds each backend to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from stateplane.booking import (
    Amount,
    Beat,
    Booking,
    Candidate,
    Cause,
    Change,
    Outcome,
    Owner,
    Snapshot,
    Terms,
    Version,
)


class StatePlane(Protocol):
    """Share in-flight bookings between the replicas of one pool.

    One object serves one owner (one life of one replica) in one pool. Promises, each with named cases in the suite:

    * **Bounded.** A silent owner's bookings turn draining within lease + heartbeat, in one versioned change, and are
      gone by their drain deadline. A live owner's never expire, however long they run.
    * **Repeatable.** Any operation sent twice does no more than once; a late one after its successor does nothing
      and says so.
    * **Fenced.** Terms and operation numbers decide, never the order of arrival. A proven end is final in any term.
    * **Ordered.** Changes of one epoch are numbered without a gap; a watcher that misses one gets a ``Gap``.
    * **Exact.** Per worker, the booked sums equal the sum of its bookings at every version.
    * **Rebuildable.** The plane may lose everything: it then begins a new epoch, and says so to every caller.
    * **Paused, not punished.** Lease and drain time run only while the plane serves: after a gap between heartbeats'
      arrivals, a clock step or a new epoch, deadlines are rebased before anyone is reaped.
    * **Honest.** Every failure is a ``StatePlaneError``; each call has a deadline; drivers' own retries are off.

    Not promised: durability; an order between the operations of two owners; that a call which raised
    ``PlaneUnavailableError`` did nothing.
    """

    capabilities: frozenset[str]
    """``{"select"}`` where the plane can choose and book in one step."""
    counts: Any
    """What happened to this plane's calls, a dataclass of numbers: each backend counts what it can meet."""

    async def start(self, info: Mapping[str, str]) -> Beat:
        """Connect, learn or begin the epoch, join as a member. Repeat it after a ``PlaneEpochError``.

        Raises PlaneRefusedError when the server cannot serve us (credentials, version, settings), PlaneUnavailableError
        when it is away.
        """
        ...

    async def book(self, booking: Booking) -> Outcome:
        """Book on ``booking.worker``.

        ``attempt`` and ``term`` of the argument are ignored and given by the plane, unless the owner books again what
        the plane lost (``booking.term`` > 0): then a higher known term or a proven end wins. A draining attempt of
        the same key is superseded; an active one stays. SAME for an id that stands already with this owner.
        """
        ...

    async def select(self, booking: Booking, candidates: Sequence[Candidate], terms: Terms) -> Outcome:
        """Choose the cheapest candidate by the exact sums, the first of equals, and book there in one step.

        Only with the capability ``select``. FULL when every candidate is at its limit. ``booking.worker`` and
        ``booking.amount`` are ignored; the outcome's booking holds the choice.
        """
        ...

    async def move(self, booking_id: str, *, term: int, op: int, worker: str, amount: Amount) -> Outcome:
        """Another endpoint served: same id, new term and worker; a superseded draining ``<id>~n`` stays on the old."""
        ...

    async def adjust(self, booking_id: str, *, term: int, op: int, amount: Amount) -> Outcome:
        """Set what it occupies (prefill ended, decode grew), inside the term."""
        ...

    async def drain(
        self, booking_id: str, *, term: int, op: int, cause: Cause, seconds: float | None = None
    ) -> Outcome:
        """Neither its end nor its life is proven: it counts on, for ``seconds`` (default: the pool's rule) at most."""
        ...

    async def reclaim(self, booking_id: str) -> Outcome:
        """Proof of life: take a draining booking, or one gone by deadline or evidence, under a new term as this owner.

        The same incarnation takes back its own; any other owner adopts. A superseded one is only prolonged (SAME).
        One with a proven end never comes back (GONE).
        """
        ...

    async def release(self, booking_id: str, cause: Cause, *, term: int | None = None) -> Outcome:
        """End it. A proven cause is final in any term, from any replica, and may arrive before its book.

        An assumed cause (evidence) needs the ``term`` it was judged in and loses to a newer one (STALE).
        """
        ...

    async def rebooked(self) -> Outcome:
        """Declare that all live bookings of this owner stand in the current epoch."""
        ...

    async def beat(self, info: Mapping[str, str]) -> Beat:
        """Renew the lease of this owner, lapse the silent ones, reap a slice of what is due.

        Raises PlaneEpochError when the plane no longer knows this owner's epoch.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """The whole picture at one version; never blocks the server for long."""
        ...

    def changes(self, after: Version) -> AsyncIterator[Change]:
        """Every change after that version, in order, until the iterator is closed.

        Yields ``Gap`` and ends when a change was missed or the epoch is another. Raises PlaneUnavailableError when
        the feed breaks.
        """
        ...

    async def sums(self) -> Mapping[str, Amount]:
        """What the plane holds to be booked per worker, from its own sums: for audits."""
        ...

    async def leave(self) -> None:
        """Leave in good order: own bookings go over as draining (cause HANDED), the lease ends. Never raises."""
        ...

    async def close(self) -> None:
        """Close connections. Never raises; a second call does nothing."""
        ...


__all__ = ["Owner", "StatePlane"]
