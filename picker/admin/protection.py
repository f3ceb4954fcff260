"""
Who may read the admin port by the API server's word: a bearer token, what is known of it, and who asks when.

What is known is kept by a digest under a key of this process, so that no token lies in memory, log or status for longer
than its request.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import structlog

from discovery.access import Review, Reviewer, ReviewError

log = structlog.get_logger(__name__)

MAX_TOKEN = 8192
"""Longest token that is asked about; tokens of ServiceAccounts have about 1,000 characters."""
MAX_READERS = 64
"""Most tokens and pages of which it is kept that they may."""
MAX_STRANGERS = 256
"""Most of which it is kept that they may not; apart, so that guesses push no reader out."""
PARALLEL = 4
"""Most questions at one time about strangers, and as many about readers: a slow server that guesses keep busy is no
reason to keep a reader waiting."""
MAX_ASKING = 16
"""Most questions of either kind begun or waiting; past it nobody is asked."""
QUESTION_SECONDS = 8.0
"""How long an answer may take, less than scrapers wait."""
STRANGERS_A_SECOND = 5.0
"""Questions a second about tokens that never were allowed, after as many as `STRANGERS_AT_ONCE` at once."""
STRANGERS_AT_ONCE = 20.0


class Verdict(Enum):
    """What becomes of a request; the value is the HTTP status."""

    ALLOWED = 200
    UNKNOWN = 401
    FORBIDDEN = 403
    AWAY = 503
    BUSY = 429


@dataclass(slots=True)
class Counts:
    """What became of requests for protected pages, since the start."""

    asked: int = 0
    """Questions to the API server."""
    unanswered: int = 0
    """Of those, such as got no answer."""
    allowed: int = 0
    unknown: int = 0
    """Requests without a token, or with nobody's."""
    forbidden: int = 0
    stood: int = 0
    """Requests answered by what was known while the API server was away."""
    away: int = 0
    """Requests refused because nothing was known and the API server was away."""
    busy: int = 0
    """Requests refused because too much was asked at one time."""
    forgotten: int = 0
    """Answers that had to make room for others."""


Key = tuple[bytes, str, str]


class Known:
    """Answers by token and page, as long as they are believed. Pure."""

    def __init__(self, life: float, counts: Counts) -> None:
        """``life``: how long an answer is believed, in seconds; past half of it the server should be asked again."""
        self._life, self._counts = life, counts
        self._readers: OrderedDict[Key, float] = OrderedDict()
        self._strangers: OrderedDict[Key, tuple[float, Verdict]] = OrderedDict()

    def verdict(self, key: Key, now: float) -> tuple[Verdict | None, bool]:
        """What is known, None where nothing is believed any more; and whether it is fresh enough not to ask."""
        if (told := self._readers.get(key)) is not None:
            age = now - told
            return (Verdict.ALLOWED if age < self._life else None), age < self._life / 2
        at, verdict = self._strangers.get(key, (-self._life, Verdict.UNKNOWN))
        # nobody is kept out by an old answer
        fresh = now - at < self._life / 2
        return (verdict if fresh else None), fresh

    def reader(self, key: Key) -> bool:
        """Whether it was allowed when last asked, however long ago."""
        return key in self._readers

    def note(self, key: Key, verdict: Verdict, now: float) -> None:
        """The API server's answer."""
        self._readers.pop(key, None)
        self._strangers.pop(key, None)
        if verdict is Verdict.ALLOWED:
            self._readers[key] = now
        else:
            self._strangers[key] = now, verdict
        kept: tuple[tuple[OrderedDict[Key, Any], int], ...] = (
            (self._readers, MAX_READERS),
            (self._strangers, MAX_STRANGERS),
        )
        for table, most in kept:
            while len(table) > most:
                table.popitem(last=False)
                self._counts.forgotten += 1

    def __len__(self) -> int:
        return len(self._readers) + len(self._strangers)


class Pace:
    """A bucket of questions about strangers. Pure."""

    def __init__(self) -> None:
        self._left, self._at = STRANGERS_AT_ONCE, 0.0

    def take(self, now: float) -> bool:
        """Whether one more may be asked."""
        self._left = min(STRANGERS_AT_ONCE, self._left + max(0.0, now - self._at) * STRANGERS_A_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Protection:
    """
    Judges requests by their bearer token.

    Args:
        reviewer: Knows tokens and rights.
        life: Longest time that an answer is believed, in seconds.
        clock: Monotonic seconds.

    """

    def __init__(self, reviewer: Reviewer, *, life: float, clock: Callable[[], float]) -> None:
        self.counts = Counts()
        self._reviewer, self._clock = reviewer, clock
        self._known, self._pace = Known(life, self.counts), Pace()
        self._secret = secrets.token_bytes(32)
        self._asking: dict[Key, asyncio.Task[Verdict]] = {}
        self._turns = {reader: asyncio.Semaphore(PARALLEL) for reader in (True, False)}
        self._fault = ""

    async def judge(self, authorization: str, *, path: str, verb: str) -> Verdict:
        """
        Whether the bearer may; waits for the API server where nothing fresh is known, for a few seconds at most.

        Args:
            authorization: The header's value.
            path: The page's, one of a few: what differs from request to request is left out.
            verb: The method, in lower case.

        """
        verdict = await self._judged(_token(authorization), path, verb)
        name = verdict.name.lower()
        setattr(self.counts, name, getattr(self.counts, name) + 1)
        return verdict

    @property
    def reason(self) -> str:
        """Why the API server gave no answer when it was last asked; empty: it did."""
        return self._fault

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {"by": "kubernetes", "fault": self._fault or None, "answers_kept": len(self._known)}

    async def close(self) -> None:
        """Ask no more."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._reviewer.close()

    async def _judged(self, token: str, path: str, verb: str) -> Verdict:
        if not token:
            return Verdict.UNKNOWN
        digest = hashlib.blake2b(token.encode(), key=self._secret, digest_size=16).digest()
        key = digest, path, verb
        known, fresh = self._known.verdict(key, self._clock())
        if known is not None and fresh:
            return known
        found = await self._asked(key, token)
        if known is not None and found in (Verdict.AWAY, Verdict.BUSY):
            self.counts.stood += 1
            return known
        return found

    async def _asked(self, key: Key, token: str) -> Verdict:
        """Ask; requests that come together for the same share one question."""
        task = self._asking.get(key)
        if task is None:
            reader = self._known.reader(key)
            room = sum(self._known.reader(other) == reader for other in self._asking) < MAX_ASKING
            if not room or not (reader or self._pace.take(self._clock())):
                return Verdict.BUSY
            task = asyncio.create_task(self._question(key, token, self._turns[reader]), name="review")
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        # a scraper that leaves does not take the answer from the others
        return await asyncio.shield(task)

    async def _question(self, key: Key, token: str, turn: asyncio.Semaphore) -> Verdict:
        _, path, verb = key
        self.counts.asked += 1
        try:
            async with asyncio.timeout(QUESTION_SECONDS), turn:
                review = await self._reviewer.review(token, path=path, verb=verb)
        except (ReviewError, TimeoutError) as error:
            self.counts.unanswered += 1
            self._note(str(error) or f"the API server did not answer within {QUESTION_SECONDS:g} seconds")
            return Verdict.AWAY
        self._note("")
        verdict = _verdict(review)
        if verdict is not Verdict.ALLOWED:
            log.debug("a reader of the admin port is refused", user=review.user or None, path=path)
        self._known.note(key, verdict, self._clock())
        return verdict

    def _note(self, fault: str) -> None:
        if bool(fault) != bool(self._fault):
            if fault:
                log.warning("tokens for the admin port cannot be checked", reason=fault)
            else:
                log.info("tokens for the admin port are checked again")
        self._fault = fault


def _verdict(review: Review) -> Verdict:
    if not review.known:
        return Verdict.UNKNOWN
    return Verdict.ALLOWED if review.allowed else Verdict.FORBIDDEN


def _token(authorization: str) -> str:
    """The bearer token; empty where there is none, or none that could be one."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or len(token) > MAX_TOKEN:
        return ""
    return token if token.isascii() and token.isprintable() and " " not in token else ""
