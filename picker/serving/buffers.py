"""Request bodies in memory: one body, and the bound over all of them."""

from __future__ import annotations


class Budget:
    """Most bytes that all streams of a process may hold at one time."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Reserve ``size`` bytes; False, and nothing reserved, where they are not left."""
        if self.held + size > self.limit:
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
        if not self._budget.take(len(piece)):
            return False
        self.paid += len(piece)
        self.size += len(piece)
        self._pieces.append(piece)
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
