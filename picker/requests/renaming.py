"""A body with another model in it: only the bytes of the top-level ``model`` change. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

import orjson

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BLANK = re.compile(rb"[ \t\r\n]*+")
_BEGIN = re.compile(rb"(?:\xef\xbb\xbf)?+[ \t\r\n]*+")
"""What may stand before the object; a byte order mark is what some editors write and engines overlook."""
_KEY = re.compile(rb"[ \t\r\n]*+(" + _STRING + rb")[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_PLAIN = re.compile(_STRING + rb"|[^\s,{}\[\]\":]++|\[[^\"\[\]{}]*+\]|\{\}", re.DOTALL)
"""A value without containers, or a flat one: told at once."""
_MARK = re.compile(_STRING + rb"|[{}\[\]]", re.DOTALL)
_NEXT = re.compile(rb"[ \t\r\n]*+([,}])")
_MAYBE = re.compile(rb'"model"|\\u006', re.IGNORECASE)
"""What a key ``model`` looks like, plainly or with escapes: m, o, d, e and l are 6d, 6f, 64, 65 and 6c."""


MAX_MEMBERS = 10_000
"""Most members of the object itself: more than any API has."""
MAX_MARKS = 700_000
"""Most strings and brackets inside the values that are objects or arrays: more than a body may hold that is read."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a body names its model."""

    values: tuple[tuple[int, int], ...]
    """Begin and end of each value of a top-level ``model``, in order; the last one counts."""
    opened: int
    """Just behind the brace that opens the object."""
    empty: bool
    """Whether the object has no member."""

    def model(self, body: bytes) -> str | None:
        """The model named; None where none is, or what stands there is no string."""
        if not self.values:
            return None
        begin, end = self.values[-1]
        try:
            value = orjson.loads(body[begin:end])
        except ValueError:
            return None
        return value if isinstance(value, str) else None


def find(body: bytes) -> Places | None:
    """Where a JSON object names its model; None for a body that is none, or past all bounds. It may be anything."""
    at = _after(_BEGIN, body, 0)
    if body[at : at + 1] != b"{":
        return None
    opened = at = at + 1
    values: list[tuple[int, int]] = []
    at = _after(_BLANK, body, at)
    if body[at : at + 1] == b"}":
        return Places((), opened, empty=True)
    marks, maybe = MAX_MARKS, 0
    for _ in range(MAX_MEMBERS):
        key = _KEY.match(body, at)
        if key is None:
            break
        end, marks = _value(body, key.end(), marks)
        if marks < 0:
            return None
        if _is_model(key[1]):
            values.append((key.end(), end))
        following = _NEXT.match(body, end)
        if following is None:
            return None
        if values and maybe < end:
            # looked for once in every part of the body, however many members there are
            later = _MAYBE.search(body, end)
            maybe = later.start() if later else len(body)
        if following[1] == b"}" or (values and maybe == len(body)):
            return Places(tuple(values), opened, empty=False)
        at = following.end()
    return None


def renamed(body: bytes, places: Places, model: str) -> bytes:
    """The body with that model: every value of a top-level ``model`` replaced, or a member put in front."""
    value = orjson.dumps(model)
    if not places.values:
        member = b'"model":' + value + (b"" if places.empty else b",")
        return body[: places.opened] + member + body[places.opened :]
    out: list[bytes] = []
    at = 0
    for begin, end in places.values:
        out += (body[at:begin], value)
        at = end
    return b"".join((*out, body[at:]))


def _after(pattern: re.Pattern[bytes], body: bytes, at: int) -> int:
    found = pattern.match(body, at)
    return found.end() if found else at


def _value(body: bytes, at: int, marks: int) -> tuple[int, int]:
    """Where the value that begins at ``at`` ends, and what is left of ``marks``: below 0 where it has no end so far."""
    if plain := _PLAIN.match(body, at):
        return plain.end(), marks
    if body[at : at + 1] not in {b"{", b"["}:
        return at, -1
    depth = 0
    for mark in _MARK.finditer(body, at):
        marks -= 1
        sign = body[mark.start()]
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1
            if depth == 0:
                return mark.end(), marks
        if marks < 0:
            break
    return at, -1


def _is_model(key: bytes) -> bool:
    if b"\\" not in key:
        return key == b'"model"'
    try:
        return bool(orjson.loads(key) == "model")
    except ValueError:
        return False
