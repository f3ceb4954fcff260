"""
Threads on which long work lets short work through.

Work goes in steps. What has taken more than `SHORT` characters so far is long: it waits behind all that is short, and
may hold all threads but one. So a short prompt waits for a step of a long one at most, never for the whole of it, and
nobody has to guess beforehand how long something will take: a long prompt that is cached is short.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SHORT = 65_536
"""Characters of work up to which it is short: some tens of milliseconds."""


class Turn(Generic[T]):
    """Work on its way. ``steps`` gives the size of each step before doing it; its result is that of ``future``."""

    __slots__ = ("abandoned", "ahead", "begun", "future", "seconds", "spent", "steps")

    def __init__(self, steps: Generator[int, None, T]) -> None:
        self.steps = steps
        self.future: Future[T] = Future()
        self.abandoned = False
        self.begun = False
        self.spent = self.ahead = 0
        """Characters done, and those of the next step."""
        self.seconds = 0.0

    def drop(self) -> None:
        """End it without a result."""
        self.steps.close()
        self.future.cancel()

    @property
    def long(self) -> bool:
        """Whether it is long, the step ahead included."""
        return self.spent + self.ahead > SHORT


class Turns:
    """
    A pool of threads that work in turns.

    Args:
        threads: How many; one of several is kept from long work.
        waiting: Most work waiting beside what the threads hold. Work said to be long may take half of the room.

    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tokenize")
        self._lock = threading.Lock()
        self._short: deque[Turn[Any]] = deque()
        self._long: deque[Turn[Any]] = deque()
        self._long_limit = max(1, threads - 1)
        self._long_running = 0
        self._held = 0
        self._closed = False
        self.limit = threads + waiting

    @property
    def held(self) -> int:
        """Work that waits or runs."""
        return self._held

    def begin(self, steps: Generator[int, None, T], size: int) -> Turn[T] | None:
        """
        Let it be done; None: there is no room for it.

        Args:
            steps: The work; it may be dropped between two steps once it is abandoned.
            size: A guess of its size in characters.

        """
        room = self.limit if size <= SHORT else max(1, self.limit // 2)
        turn = Turn(steps)
        with self._lock:
            if self._closed or self._held >= room:
                return None
            self._held += 1
            self._queue(turn)
        self._wake()
        return turn

    def abandon(self, turn: Turn[T]) -> None:
        """
        Nobody waits for it any more.

        It is dropped, with all that it holds, where it has not begun or something else waits; else it goes on for as
        long as nothing does.
        """
        with self._lock:
            turn.abandoned = True
            queue = next((queue for queue in (self._short, self._long) if turn in queue), None)
            if queue is None or not self._droppable(turn, others=len(self._short) + len(self._long) - 1):
                return
            queue.remove(turn)
            self._held -= 1
        turn.drop()

    @staticmethod
    def _droppable(turn: Turn[Any], *, others: int) -> bool:
        return turn.abandoned and (not turn.begun or others > 0)

    def _queue(self, turn: Turn[Any], *, first: bool = False) -> None:
        """Holding the lock. What comes back goes first among its like, so that some is finished in time."""
        queue = self._long if turn.long else self._short
        (queue.appendleft if first else queue.append)(turn)

    def _take(self) -> Turn[Any] | None:
        with self._lock:
            if self._short:
                turn = self._short.popleft()
            elif self._long and self._long_running < self._long_limit:
                self._long_running += 1
                turn = self._long.popleft()
            else:
                return None
            turn.begun = True
            return turn

    def _next(self) -> None:
        """In a thread: one step of the work whose turn it is."""
        turn = self._take()
        if turn is None:
            return
        long = turn.long
        begun = time.monotonic()
        settle = self._step(turn)
        turn.seconds += time.monotonic() - begun
        with self._lock:
            self._long_running -= long
            waiting = len(self._short) + len(self._long)
            if settle is None and (self._closed or self._droppable(turn, others=waiting)):
                settle = turn.drop
            if settle is None:
                self._queue(turn, first=turn.long == long)
            else:
                self._held -= 1
            more = settle is None or bool(self._long)
        if more:
            self._wake()
        if settle is not None:
            settle()

    def _step(self, turn: Turn[Any]) -> Callable[[], object] | None:
        """Do one step. None where more are to come, else what is left to do once the place is given back."""
        try:
            turn.spent += turn.ahead
            turn.ahead = next(turn.steps)
        except StopIteration as end:
            return partial(turn.future.set_result, end.value)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the future
            return partial(turn.future.set_exception, error)
        return None

    def _wake(self) -> None:
        try:
            self._threads.submit(self._next)
        except RuntimeError:  # closed meanwhile: `close` has answered what was queued
            return

    def close(self) -> None:
        """Take nothing more; what waits is cancelled, what runs ends with its step."""
        with self._lock:
            self._closed = True
            waiting = [*self._short, *self._long]
            self._short.clear()
            self._long.clear()
            self._held -= len(waiting)
        for turn in waiting:
            turn.drop()
        self._threads.shutdown(wait=False, cancel_futures=True)
