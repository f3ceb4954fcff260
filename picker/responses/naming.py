"""
The client's model name put back into an answer. Pure; nothing raises, nothing is held back.

A scanner follows the JSON of the answer, or of each line of an event stream: where strings begin and end, how deep it
is, what the key was. The string under ``model`` of the answer itself, of its ``response`` (responses API) and of its
``message`` (Anthropic) is replaced; every other byte goes on as it came, whatever it says. Engines write such a key
without escapes.
"""

from __future__ import annotations

import re
from enum import Enum, auto

import orjson

from picker.responses.shape import Shape

MOST_KEY = 16
"""Longest key that is remembered."""
MOST_PREFIX = 64
"""Longest text before a line's JSON: the name of the field and blanks."""
FIRST_STEPS = 20_000
"""Steps of the scanner, one a quote, bracket or line, that every answer may cost: some 20 ms of the event loop."""
BYTES_A_STEP = 16
"""Bytes of the answer that grant one step more. Engines' events cost one to three steps in 200 bytes or more."""

_HOLDERS = (b"response", b"message")

# None of these passes the end of a line: in an event stream it ends the JSON, whatever that says.
_TEXT = re.compile(rb'[^"\\\r\n]*')
_DEEP = re.compile(rb'[^"{}\[\]\r\n]*')
_NEAR = re.compile(rb'[^"{}\[\],:\r\n]*')
_LINE = re.compile(rb"[^\r\n]*")
_PREFIX = re.compile(rb"[^{\r\n]*")
_FIELD = re.compile(rb"\s*+(?:data:)?+\s*+")

_USUAL = re.compile(
    rb'(?:data:)?+[ ]?+\{(?:"(?!model")[^"\\\r\n]*+":[ ]?+(?:"[^"\\\r\n]*+"|[\w.+-]++),[ ]?+)*+'
    rb'"model":[ ]?+("[^"\\\r\n]*+")'
)
"""How most answers and events begin; told at once, as the scanner would tell it in some twenty steps."""

_QUOTE, _ESCAPE, _COMMA, _COLON = b'"\\,:'
_OPENING, _CLOSING, _ENDS = b"{[", b"}]", b"\r\n"


class _At(Enum):
    BEFORE = auto()  # before the JSON: of the answer, or of a line
    PLAIN = auto()  # in JSON, outside of strings
    KEY = auto()  # in a key that may matter
    TEXT = auto()  # in any other string
    NAME = auto()  # in the model's name, which does not go on
    REST = auto()  # past all that matters: of the answer, or of a line


class Naming:
    """Puts a name into one answer."""

    __slots__ = (
        "_at",
        "_depth",
        "_escaped",
        "_holder",
        "_key",
        "_lines",
        "_name",
        "_steps",
        "_value",
        "exhausted",
        "named",
    )

    def __init__(self, shape: Shape, name: str) -> None:
        self._lines = shape is Shape.LINES
        self._name = orjson.dumps(name)
        self.named = False
        """Whether the name was put in."""
        self.exhausted = False
        """Whether the answer had more signs than its length grants: from there on it goes on as it came."""
        self._steps = FIRST_STEPS
        self._begin()

    def _begin(self) -> None:
        self._at = _At.BEFORE
        self._depth = 0
        self._holder = False  # whether what is open at depth two is an object that may hold a model
        self._key = b""  # before the JSON: what stands there; in it: the last key at a depth that matters
        self._value = False  # whether that key's value comes next
        self._escaped = False

    def piece(self, data: bytes) -> bytes | None:
        """What goes on instead of ``data``; None: ``data`` itself."""
        if self.exhausted or self._passes(data):
            return None
        self._steps += len(data) // BYTES_A_STEP
        out: list[bytes] = []
        at, size, swallowing = 0, len(data), self._at is _At.NAME
        begun, changed = (size if swallowing else 0), swallowing
        while at < size:
            self._steps -= 1
            if self._steps < 0:
                self.exhausted, begun = True, at if swallowing else begun
                break
            if self._lines and data[at] in _ENDS:
                begun, swallowing = at if swallowing else begun, False
                self._begin()
                at += 1
                continue
            if self._at is _At.BEFORE and not self._key and (usual := _USUAL.match(data, at)):
                out += (data[begun : usual.start(1)], self._name)
                at = begun = usual.end(1)
                self._at, self.named, changed = _At.REST, True, True
                continue
            at = self._step(data, at)
            if swallowing == (self._at is _At.NAME):
                continue
            swallowing = not swallowing
            if swallowing:
                out += (data[begun : at - 1], self._name)
                begun, changed = size, True
            else:
                begun = at
        if not changed:
            return None
        out.append(data[begun:])
        return b"".join(out)

    def _passes(self, data: bytes) -> bool:
        """Whether a piece can be told at a glance to pass: past the name, or whole lines that hold none."""
        if not self._lines:
            return self._at is _At.REST
        return self._at is _At.BEFORE and not self._key and data.endswith(b"\n") and b'"model"' not in data

    def _step(self, data: bytes, at: int) -> int:
        """Go on to the next sign that matters, and past it; but not past the end of a line that is one."""
        match self._at:
            case _At.BEFORE:
                return self._before(data, at)
            case _At.PLAIN:
                return self._plain(data, at)
            case _At.REST:
                return _end(_LINE, data, at) if self._lines else len(data)
            case _:
                return self._string(data, at)

    def _before(self, data: bytes, at: int) -> int:
        end = _end(_PREFIX, data, at)
        self._key += data[at:end][: MOST_PREFIX + 1]
        if len(self._key) > MOST_PREFIX:
            self._at = _At.REST
        if end == len(data) or data[end] in _ENDS:
            return self._past(data, end)
        self._at = _At.PLAIN if _FIELD.fullmatch(self._key) else _At.REST
        self._depth, self._key = 1, b""
        return end + 1

    def _plain(self, data: bytes, at: int) -> int:
        near = self._depth == 1 or (self._depth == 2 and self._holder)
        end = _end(_NEAR if near else _DEEP, data, at)
        if end == len(data) or data[end] in _ENDS:
            return self._past(data, end)
        sign = data[end]
        if sign == _QUOTE:
            self._open_string(near=near)
        elif sign in _OPENING:
            self._depth += 1
            if self._depth == 2:
                self._holder = sign == _OPENING[0] and self._key in _HOLDERS
                self._value = not self._holder
                self._key = b""
        elif sign in _CLOSING:
            self._depth -= 1
            if self._depth == 0:
                self._at = _At.REST
            elif self._depth == 1:
                self._holder, self._value, self._key = False, True, b""
        elif near and sign == _COMMA:
            self._value, self._key = False, b""
        elif near and sign == _COLON:
            self._value = True
        return end + 1

    def _open_string(self, *, near: bool) -> None:
        if not near:
            self._at = _At.TEXT
        elif not self._value:
            self._at, self._key = _At.KEY, b""
        else:
            self._at = _At.NAME if self._key == b"model" else _At.TEXT

    def _string(self, data: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        end = _end(_TEXT, data, at)
        if self._at is _At.KEY and len(self._key) <= MOST_KEY:
            self._key += data[at : min(end, at + MOST_KEY + 1)]
        if end == len(data) or data[end] in _ENDS:
            return self._past(data, end)
        if data[end] == _ESCAPE:
            self._escaped = True
            if self._at is _At.KEY:
                self._key += b"\\"[: MOST_KEY - len(self._key)]
        elif data[end] == _QUOTE:
            self.named |= self._at is _At.NAME
            self._at = _At.REST if self._at is _At.NAME else _At.PLAIN
        return end + 1

    def _past(self, data: bytes, end: int) -> int:
        """Past an end of line that is a blank like any other; not past one that ends what is read."""
        return end if self._lines or end == len(data) else end + 1


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    """Where the longest match from ``at`` on ends; the patterns match the empty text."""
    found = pattern.match(data, at)
    return found.end() if found else at
