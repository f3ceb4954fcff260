"""The shared ledger with its history of changes. A test may freeze it, take it away, restart it and set its clock."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from weakref import WeakValueDictionary

from stateplane.booking import Change, Gap, Rules, Version
from stateplane.errors import PlaneDisconnectedError, PlaneTimeoutError
from stateplane.ledger import Ledger
from stateplane.servingtime import milliseconds

HISTORY = 65_536
"""Changes kept for watchers; one that is further behind gets a ``Gap``."""


class MemoryStore:
    """One shared ledger with its history of changes."""

    def __init__(
        self, rules: Rules, *, clock: Callable[[], float] = time.monotonic, history: int = HISTORY
    ) -> None:
        self._clock = clock
        self.ledger = Ledger(rules, now=self.now())
        self.away = False
        """A test's: calls are refused as if no server were there."""
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._history: deque[Change] = deque(maxlen=history)
        self._first = 1
        self._news = asyncio.Event()

    def now(self) -> int:
        """The store's server time, milliseconds."""
        return milliseconds(self._clock())

    def freeze(self) -> None:
        """Answer nobody until ``thaw``; time goes on."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Serve again."""
        self._thawed.set()

    def restart(self, *, lose: bool = True) -> None:
        """Begin a new epoch, as a server does that was restarted; ``lose``: with nothing left."""
        self.ledger.restart(now=self.now(), lose=lose)
        self._history.clear()
        self._first = 1
        self.wake()

    def forget(self) -> None:
        """Drop the kept changes, as a long time would."""
        self._history.clear()
        self._first = self.ledger.number + 1

    async def serving(self, timeout: float) -> None:
        """Return once the store serves; raises PlaneUnavailableError when it does not in time."""
        if self.away:
            raise PlaneDisconnectedError("the memory plane was taken away")
        if self._thawed.is_set():
            return
        try:
            await asyncio.wait_for(self._thawed.wait(), timeout)
        except TimeoutError as error:
            raise PlaneTimeoutError(f"the memory plane gave no answer within {timeout} s") from error

    def publish(self) -> None:
        """Hand the ledger's new changes to the watchers."""
        changes = self.ledger.take()
        if not changes:
            return
        self._history.extend(changes)
        self._first = self.ledger.number - len(self._history) + 1
        self.wake()

    def wake(self) -> None:
        """Let every watcher look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def since(self, after: Version) -> list[Change]:
        """The changes after that version, or one ``Gap``."""
        if after.epoch != self.ledger.epoch:
            return [Gap(f"the plane is in epoch {self.ledger.epoch}, not {after.epoch}")]
        behind = self.ledger.number - after.number
        if behind < 0 or after.number + 1 < self._first:
            return [Gap(f"changes after {after.number} are no longer kept")]
        return [self._history[i] for i in range(len(self._history) - behind, len(self._history))]

    async def news(self) -> None:
        """Return at the next change."""
        await self._news.wait()


_STORES: WeakValueDictionary[tuple[str, str], MemoryStore] = WeakValueDictionary()


def shared_store(name: str, pool: str, rules: Rules) -> MemoryStore:
    """The store of that name and pool in this process, kept as long as some plane holds it. No name: one of its own."""
    if not name:
        return MemoryStore(rules)
    store = _STORES.get((name, pool))
    if store is None:
        store = _STORES[name, pool] = MemoryStore(rules)
    return store


__all__ = ["HISTORY", "MemoryStore", "shared_store"]
