"""One replica's line to the plane: every call goes through here, within its deadline, and tells how the plane does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from stateplane.breaker import Breaker, Health
from stateplane.errors import PlaneEpochError, PlaneTimeoutError, StatePlaneError

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Counts:
    """What happened to the calls of one replica."""

    calls: int = 0
    failed: int = 0
    epochs: int = 0  # calls refused because the plane had begun a new life
    invalid: int = 0  # calls whose values no plane takes: a fault of this program
    joins: int = 0
    beats: int = 0
    changes: int = 0
    snapshots: int = 0
    gaps: int = 0
    feeds_broken: int = 0
    stalls: int = 0  # feeds that brought nothing although the plane had moved on
    rebooked: int = 0
    away: int = 0  # times the plane was given up for away
    handed: int = 0  # own bookings that were live when this replica left


class Line:
    """Calls with a deadline of ``2 * timeout`` seconds: the plane keeps its own of ``timeout``, this one guards it."""

    def __init__(self, *, clock: Callable[[], float], timeout: float) -> None:
        self.counts = Counts()
        self.breaker = Breaker(now=clock(), slow=timeout / 2)
        self.turned: Callable[[], None] = lambda: None
        """Called when the plane went away or came back."""
        self.epoch_over: Callable[[], None] = lambda: None
        """Called when the plane began a new epoch."""
        self._clock = clock
        self._timeout = timeout

    async def ask(self, call: Awaitable[T], *, longer: float = 0.0) -> T:
        """Await a call, ``longer`` seconds beyond the deadline. Raises StatePlaneError, ValueError for bad values."""
        self.counts.calls += 1
        began = self._clock()
        within = 2 * self._timeout + longer
        try:
            async with asyncio.timeout(within):
                answer = await call
        except PlaneEpochError as error:
            self.counts.epochs += 1
            self._answered(began)
            log.debug("state plane is in another epoch", reason=str(error))
            self.epoch_over()
            raise
        except StatePlaneError as error:
            self.counts.failed += 1
            self.broke(error)
            raise
        except TimeoutError as error:
            self.counts.failed += 1
            late = PlaneTimeoutError(f"no answer within {within:g} s")
            self.broke(late)
            raise late from error
        self._answered(began)
        return answer

    async def ask_all(
        self, calls: Awaitable[Sequence[T | Exception]], number: int
    ) -> Sequence[T | Exception]:
        """As `ask`, of several calls made together: gives what each was answered, or what `ask` would raise of it."""
        self.counts.calls += number
        began = self._clock()
        within = 2 * self._timeout
        try:
            async with asyncio.timeout(within):
                answers = await calls
        except TimeoutError:
            answers = [PlaneTimeoutError(f"no answer within {within:g} s")] * number
        for answer in answers:
            if isinstance(answer, PlaneEpochError):
                self.counts.epochs += 1
                log.debug("state plane is in another epoch", reason=str(answer))
                self._answered(began)
                self.epoch_over()
            elif isinstance(answer, StatePlaneError):
                self.counts.failed += 1
                self.broke(answer)
        if any(not isinstance(answer, StatePlaneError) for answer in answers):
            self._answered(began)
        return answers

    def broke(self, error: StatePlaneError) -> None:
        """A call or the feed failed."""
        reason = str(error) or type(error).__name__
        if self.breaker.failed(self._clock(), reason) and self.breaker.state is Health.AWAY:
            self.counts.away += 1
            log.warning("state plane away, picking on local knowledge", reason=reason)
            self.turned()

    def _answered(self, began: float) -> None:
        now = self._clock()
        was = self.breaker.state
        if self.breaker.answered(now, now - began) and was is Health.AWAY:
            log.info("state plane reached")
            self.turned()
