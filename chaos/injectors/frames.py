"""The NATS protocol, cut into its messages: enough of it to tell one from the next and which subject it is on.

Every byte that goes in comes out, in order, as the ``raw`` of exactly one frame. What is not understood (TLS, a
line without an end, a size that is none) is passed on as it is from there to the end of the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_LINE = 1024 * 1024
"""INFO lists every server of a cluster in one line."""
LONGEST_FRAME = 16 * 1024 * 1024
"""Longest message that is held until it is whole."""
_END = b"\r\n"
_ARGUMENTS = {"PUB": (2, 3), "HPUB": (3, 4), "MSG": (3, 4), "HMSG": (4, 5)}
"""Verb -> how many arguments it has without and with a reply subject."""
_SUBJECT_PLUS = {"PUB": 1, "HPUB": 1, "MSG": 2, "HMSG": 2}
"""Verb -> where the reply subject stands, if there is one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the protocol."""

    raw: bytes
    verb: str = ""
    """``PUB``, ``MSG``, ``PING`` ...; empty where it is not understood."""
    subject: str = ""
    """Of PUB, HPUB, MSG, HMSG."""
    reply: str = ""

    def with_reply(self, reply: str) -> Frame:
        """The same message with another reply subject; it must have one."""
        line, end, rest = self.raw.partition(_END)
        words = line.split()
        words[1 + _SUBJECT_PLUS[self.verb]] = reply.encode()
        return Frame(b" ".join(words) + end + rest, self.verb, self.subject, reply)


class Frames:
    """Bytes of one direction, in any pieces -> frames."""

    def __init__(self) -> None:
        self.lost = False
        """Since then nothing is understood."""
        self._buffer = bytearray()
        self._wanted = 0
        """Bytes that the buffer must hold before the next look is worth it."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now."""
        self._buffer += data
        while self._buffer:
            if self.lost:
                yield Frame(self.rest())
                return
            if len(self._buffer) < self._wanted:
                return
            frame = self._next()
            if frame is None:
                return
            yield frame

    def rest(self) -> bytes:
        """What has come of a frame that is not whole; taken out."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def _next(self) -> Frame | None:
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > LONGEST_LINE:
                self.lost = True
                return Frame(self.rest())
            return None
        told = _told(bytes(self._buffer[:end]))
        if told is None or told[3] > LONGEST_FRAME:
            self.lost = True
            return Frame(self.rest())
        verb, subject, reply, payload = told
        size = end + 2 + (payload + 2 if verb in _ARGUMENTS else 0)
        if len(self._buffer) < size:
            self._wanted = size
            return None
        self._wanted = 0
        raw = bytes(self._buffer[:size])
        del self._buffer[:size]
        return Frame(raw, verb, subject, reply)


def _told(line: bytes) -> tuple[str, str, str, int] | None:
    """Verb, subject, reply, bytes of payload; None for a line that is not NATS."""
    verb, _, rest = line.decode("utf-8", "surrogateescape").partition(" ")
    verb = verb.strip().upper()
    if not verb.lstrip("+-").isalpha() or not verb.isascii():
        return None
    if verb not in _ARGUMENTS:
        return verb, "", "", 0
    arguments = rest.split()
    plain, replied = _ARGUMENTS[verb]
    if len(arguments) not in (plain, replied) or not arguments[-1].isdecimal():
        return None
    reply = arguments[_SUBJECT_PLUS[verb]] if len(arguments) == replied else ""
    return verb, arguments[0], reply, int(arguments[-1])


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject is one of the pattern's: ``*`` stands for one token, ``>`` for one or more at the end."""
    wanted, got = pattern.split("."), subject.split(".")
    for place, part in enumerate(wanted):
        if part == ">":
            return len(got) > place
        if place >= len(got) or part not in ("*", got[place]):
            return False
    return len(wanted) == len(got)
