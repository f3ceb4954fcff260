"""
Keeps asking about workers whose position is not current: in the background, a bounded number at one time,
with growing pauses, until the answer came or the worker is let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_never, wait_random_exponential

from picker.events.applying import Applier
from picker.events.counts import Counts
from picker.events.follower import Follower
from picker.events.link import Link
from picker.events.records import Ask
from picker.events.recovery import Silence, gathered, question
from picker.events.subjects import Subjects
from picker.settings import EventSettings

RETRY_FIRST_SECONDS: Final = 0.2
RETRY_MOST_SECONDS: Final = 5.0
SILENT_EACH_SECONDS: Final = 0.5
SILENT_MOST_SECONDS: Final = 300.0
"""Workers without a bridge are asked about for good: all of them together a few times a second, however many they are,
and each of them at least so often. A bridge that comes tells so itself, which ends a pause."""


class Recovering:
    """
    The questions of one replica. Nothing is asked before ``tasks`` is set.

    Args:
        settings: how many at one time, and how long an answer may take.
        link: the connection to NATS.
        subjects: of the pool.
        applier: uses the answers.
        counts: where it counts.
        here: the answer of a source inside this process, or ``None`` where none stands for the worker.

    """

    def __init__(
        self,
        settings: EventSettings,
        link: Link,
        subjects: Subjects,
        *,
        applier: Applier,
        counts: Counts,
        here: Callable[[str, Ask], Iterator[bytes] | None],
    ) -> None:
        self.counts = counts
        self.tasks: asyncio.TaskGroup | None = None
        self._link = link
        self._subjects = subjects
        self._applier = applier
        self._here = here
        self._timeout = settings.recovery_timeout_seconds
        self._gate = asyncio.Semaphore(settings.recovery_parallel)
        self._asked_about = 0

    def see_to(self, follower: Follower) -> None:
        """See to it that this worker is being recovered, unless it is current or nothing runs yet."""
        if self.tasks is None or follower.task is not None or follower.cursor.current:
            return
        follower.task = self.tasks.create_task(self._recovery(follower), name=f"recover {follower.worker}")

    async def _recovery(self, follower: Follower) -> None:
        """Ask until the worker is current; letting it go cancels this."""
        retrying = AsyncRetrying(
            retry=retry_if_result(lambda done: not done),
            wait=self._pause,
            stop=stop_never,
            sleep=follower.rest,
        )
        self._asked_about += 1
        try:
            await retrying(self._once, follower)
        finally:
            self._asked_about -= 1
            follower.task = None
        self.see_to(follower)  # what arrived while this task was ending

    def _pause(self, state: RetryCallState) -> float:
        """Seconds until the next question about a worker: where nobody answers the longer, the more such there are."""
        follower: Follower = state.args[0]
        most = RETRY_MOST_SECONDS
        if not follower.answers and self._link.connected:
            most = max(most, min(SILENT_EACH_SECONDS * self._asked_about, SILENT_MOST_SECONDS))
        return wait_random_exponential(multiplier=RETRY_FIRST_SECONDS, max=most)(state)

    async def _once(self, follower: Follower) -> bool:
        """One question, and its answer applied. Whether the worker is current."""
        async with self._gate:
            if follower.cursor.current:
                return True
            self.counts.asks += 1
            asked, ask = follower.cursor.epoch, follower.cursor.ask()
            here = self._here(follower.worker, ask)
            if here is not None:
                answer = gathered(here)
            else:
                subject = self._subjects.asks(follower.worker)
                answer = await question(self._link, subject, ask, timeout=self._timeout)
            if isinstance(answer, Silence):
                self.counts.unanswered += 1
                follower.last_error = answer.reason
                if self._link.connected:
                    follower.answers = answer.reached
                return False
            self.counts.answers += 1
            follower.answers = True
            await self._applier.answer(follower, answer, asked)
        if follower.cursor.current:
            follower.last_error = ""
        return follower.cursor.current
