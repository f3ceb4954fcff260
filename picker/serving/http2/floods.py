"""How much a peer may ask for that costs us and brings it nothing.

Each kind of frame has a bucket of tokens, which fills with time and with work that was really done: pings and window
updates are earned by the frames that we send, resets by streams that were answered, late frames by streams that are
over. An empty bucket ends the connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from picker.serving.http2.frames import ENHANCE_YOUR_CALM, ConnectionFault


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens that a bucket gains each second, and the most that it holds."""

    each_second: float
    most: float
    most_earned: float = 0
    """... with those that were earned, where that is more: what a peer owes us for a burst may come as one."""


PINGS = Rate(100, 1_000)
SETTINGS = Rate(10, 100)
EMPTY = Rate(100, 1_000)
IDLE = Rate(100, 2_000, 40_000)
IDLE_EARNED = 4
"""... that each stream is worth once it is over: what its peer still says of it (its own end, a reset, windows for our
last data) crosses our end on the way, and is no flood however many streams there are, or end at one time."""
WINDOWS = Rate(1_000, 10_000, 40_000)
BLOCKS = Rate(400_000, 1_000_000)
"""Microseconds of decoding headers. A gateway that traces puts its clients' ``tracestate`` into them, of up to 3 KiB
that are decoded in 0.4 ms: so many come from a thousand clients a second that leave before their answer."""
BLOCK_EARNED = 4_000
"""... that each frame with data sent is worth: streams that are answered pay for their headers."""
HEADERS = Rate(1, 20)
"""Headers over the limit: they are dear to decode."""
RESETS = Rate(3_000, 12_000)
"""Clients that leave before an answer are no flood: a gateway passes on each of them as one reset, as many as it can
have, and all that are open at one time where what stands before it breaks. It shares its connection among all clients:
to cut it off would cost everybody, and the ones that leave would go on by the next."""
UNREAD = 1_000
"""Answers to a peer's own control frames that may wait while it does not read."""


class Bucket:
    """Tokens of one kind of frame."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._tokens = rate.most
        self._at = now

    def take(self, now: float, earned: float = 0, amount: float = 1) -> bool:
        """Take ``amount`` tokens, after ``earned`` were added; False where there are not as many."""
        rate, tokens = self._rate, self._tokens
        if tokens < rate.most:
            tokens = min(rate.most, tokens + max(0.0, now - self._at) * rate.each_second)
        self._at = now
        if earned:
            tokens = min(max(rate.most, rate.most_earned), tokens + earned)
        if tokens < amount:
            self._tokens = tokens
            return False
        self._tokens = tokens - amount
        return True


class Floods:
    """The buckets of one connection. Each method raises `ConnectionFault` where its bucket is empty."""

    __slots__ = (
        "_answered", "_blocks", "_closed", "_empty", "_headers", "_idle", "_pings", "_resets", "_sent_block",
        "_sent_ping", "_sent_window", "_settings", "_unread", "_windows", "cut_by",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.cut_by = ""
        """The count under which this connection was cut off; empty while it was not."""
        self._pings = Bucket(PINGS, now)
        self._settings = Bucket(SETTINGS, now)
        self._blocks = Bucket(BLOCKS, now)
        self._empty = Bucket(EMPTY, now)
        self._headers = Bucket(HEADERS, now)
        self._idle = Bucket(IDLE, now)
        self._windows = Bucket(WINDOWS, now)
        self._resets = Bucket(RESETS, now)
        self._sent_block = self._sent_ping = self._sent_window = self._answered = self._closed = (
            self._unread
        ) = 0

    def ping(self, now: float, sent: int) -> None:
        """A ping; ``sent``: frames with data sent so far, each of which a peer that measures may answer with one."""
        earned, self._sent_ping = sent - self._sent_ping, sent
        if not self._pings.take(now, earned):
            raise self.cut("flooded_pings", "too many PING frames")

    def settings(self, now: float) -> None:
        """Settings."""
        if not self._settings.take(now):
            raise self.cut("flooded_settings", "too many SETTINGS frames")

    def empty(self, now: float) -> None:
        """A frame without data that does not end its stream."""
        if not self._empty.take(now):
            raise self.cut("flooded_empty", "too many empty DATA frames")

    def block(self, now: float, cost: float, sent: int) -> None:
        """A block of compressed headers that cost so many microseconds to decode; ``sent`` as for `ping`."""
        earned, self._sent_block = sent - self._sent_block, sent
        if not self._blocks.take(now, BLOCK_EARNED * earned, cost):
            raise self.cut("flooded_headers", "too many new headers")

    def headers(self, now: float) -> None:
        """Headers over the limit of one stream."""
        if not self._headers.take(now):
            raise self.cut("flooded_headers", "too many streams with too large headers")

    def idle(self, now: float, closed: int) -> None:
        """A frame that concerns nothing that is open; ``closed``: streams that are over so far."""
        earned, self._closed = closed - self._closed, closed
        if not self._idle.take(now, IDLE_EARNED * earned):
            raise self.cut("flooded_idle", "too many frames that concern no open stream")

    def window(self, now: float, sent: int) -> None:
        """A window update; ``sent``: frames with data sent and streams that are over so far."""
        earned, self._sent_window = sent - self._sent_window, sent
        if not self._windows.take(now, 2 * earned):
            raise self.cut("flooded_windows", "too many WINDOW_UPDATE frames")

    def reset(self, now: float, answered: int) -> None:
        """A stream that came to nothing; ``answered``: streams answered so far."""
        earned, self._answered = answered - self._answered, answered
        if not self._resets.take(now, earned):
            raise self.cut("flooded_resets", "too many streams that were reset before an answer")

    def unread(self) -> None:
        """An answer to a control frame has to wait because the peer does not read."""
        self._unread += 1
        if self._unread > UNREAD:
            raise self.cut("flooded_unread", "answers to control frames are not read")

    def read(self) -> None:
        """The peer reads again."""
        self._unread = 0

    def cut(self, count: str, reason: str) -> ConnectionFault:
        """Cut the connection off, to be counted under ``count``."""
        self.cut_by = count
        return ConnectionFault(ENHANCE_YOUR_CALM, reason)
