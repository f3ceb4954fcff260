"""Request bodies in memory: one body, and the bound over all of them."""

from __future__ import annotations

SMALL = 64 * 1024
RESERVE = 8
"""One part in so many of the budget is for small bodies alone."""


class Budget:
    """Most bytes that all streams of a process may hold at one time.

    The last eighth is kept for bodies up to `SMALL` bytes: a few clients that send huge bodies slowly must not take
    the memory from the many that send small ones.
    """

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int, *, paid: int = 0) -> bool:
        """Reserve ``size`` bytes more for a body that has ``paid``; False, and nothing reserved, if not left."""
        limit = self.limit if paid + size <= SMALL else self.limit - self.limit // RESERVE
        if self.held + size > limit:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        """Return bytes that were taken."""
        self.held -= size


class Body:
    """A request body as it grows, paid from a budget until it is `forgotten`."""

    __slots__ = ("_budget", "_pieces", "paid", "size")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._pieces: list[bytes] = []
        self.size = 0
        self.paid = 0

    def add(self, piece: bytes) -> bool:
        """Append a piece; False, and nothing appended, where the budget does not allow it."""
        if not piece:
            return True
        if not self._budget.take(len(piece), paid=self.paid):
            return False
        self.paid += len(piece)
        self.size += len(piece)
        self._pieces.append(piece)
        return True

    def charge(self, size: int) -> bool:
        """Pay for bytes of this body that are kept elsewhere; False, and nothing paid, where the budget is spent."""
        if not self._budget.take(size, paid=self.paid):
            return False
        self.paid += size
        return True

    def replace(self, body: bytes) -> bool:
        """Hold other bytes instead; False, and all as it was, where the budget does not allow them."""
        more = len(body) - self.size
        if more > 0 and not self._budget.take(more, paid=self.paid):
            return False
        if more < 0:
            self._budget.give(-more)
        self.paid += more
        self.size = len(body)
        self._pieces = [body]
        return True

    def whole(self) -> bytes:
        """All bytes so far."""
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def taken(self) -> bytes:
        """All bytes so far, which this body then no longer holds; they stay paid until `forget`."""
        whole = self.whole()
        self._pieces = []
        self.size = 0
        return whole

    def forget(self) -> None:
        """Drop the bytes and give back what they cost."""
        self._pieces = []
        self.size = 0
        self._budget.give(self.paid)
        self.paid = 0
