"""
Token usage as engines tell it, out of the pieces of a response. Pure; nothing raises.

Read are: OpenAI's completions, chat completions and embeddings (``usage`` of the answer, or of a stream's last chunk
but one), its responses API (``response.usage`` of ``response.completed``), and Anthropic's messages (``message.usage``
of ``message_start``, ``usage`` of ``message_delta``). Counts only grow while a stream goes on, so that several tellings
are merged field by field, the larger one counting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from picker.responses.counts import Unreadable
from picker.responses.shape import Shape

KEPT_BYTES = 32 * 1024
"""So much of a response's end, or of the end of one event, is kept; usage stands at the end of what is longer."""

WHOLE_BYTES = 1024 * 1024
"""Longest text that is parsed whole; of a longer one the end is looked at."""

MOST_MEMBERS = 4
"""Of the members that look like usage in the end of a long text so many are tried, from the last one on."""

MOST_TOKENS = 2**40
"""A larger count is taken for nonsense."""

_MEMBER = re.compile(rb'(?<!\\)"(?:usage|meta_info)"\s*+:\s*+(?=\{)')
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_LINE_END = re.compile(rb"[\r\n]+")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request by the engine's word."""

    input: int
    """Prompt tokens, cached ones included."""
    output: int
    cached: int | None
    """Prompt tokens that were found in the cache; None: not told."""


class UsageReading:
    """Reads one response. ``pieces`` may be cut anywhere; at most `KEPT_BYTES` are kept between two of them."""

    __slots__ = ("_cut", "_fields", "_kept", "_lines", "fault")

    def __init__(self, shape: Shape) -> None:
        self._lines = shape is Shape.LINES
        self._kept = b""
        self._cut = False
        """Whether what is kept has lost its beginning."""
        self._fields: dict[str, int] = {}
        self.fault: Unreadable | None = None
        """Why a usage that may have been told could not be read."""

    def piece(self, data: bytes, *, end: bool) -> None:
        """One more piece of the body."""
        text = self._kept + data if self._kept else data
        if not self._lines:
            if end:
                self._kept = b""
                self._whole(text)
            else:
                self._keep(text)
            return
        cut = len(text) if end else max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if cut:
            if b"usage" in text or b"meta_info" in text:
                self._events(text[:cut])
            self._cut = False
        self._keep(text[cut:] if cut else text)

    @property
    def usage(self) -> Usage | None:
        """What was told so far; None: nothing."""
        found = self._fields
        if not found.keys() & {"input", "output"}:
            return None
        aside = found.get("read", 0) + found.get("written", 0)
        cached = found.get("cached", found.get("read"))
        return Usage(found.get("input", 0) + aside, found.get("output", 0), cached)

    def _keep(self, text: bytes) -> None:
        if len(text) > KEPT_BYTES:
            self._cut, text = True, text[-KEPT_BYTES:]
        self._kept = text

    def _whole(self, text: bytes) -> None:
        """The whole answer, or its end."""
        if not _MEMBER.search(text):
            if self._cut:
                self.fault = Unreadable.TOO_LARGE
            return
        if not self._read(text, cut=self._cut):
            self.fault = Unreadable.TOO_LARGE if self._cut else Unreadable.BROKEN

    def _events(self, text: bytes) -> None:
        """Whole lines; the first one may have lost its beginning."""
        cut = self._cut
        for line in _LINE_END.split(text):
            if _MEMBER.search(line):
                payload = line if cut else line.removeprefix(b"data:").lstrip()
                if not self._read(payload, cut=cut):
                    self.fault = Unreadable.TOO_LARGE if cut else Unreadable.BROKEN
            cut = False

    def _read(self, text: bytes, *, cut: bool) -> bool:
        """Note what a JSON text tells; False where it is not to be read."""
        if cut or len(text) > WHOLE_BYTES:
            told = list(_tail_usages(text[-KEPT_BYTES:]))
        else:
            try:
                told = list(_usages(orjson.loads(text)))
            except (ValueError, RecursionError):
                return False
        for usage in told:
            self._merge(usage)
        return bool(told) or not cut

    def _merge(self, usage: Mapping[str, Any]) -> None:
        for name, count in _counts(usage).items():
            self._fields[name] = max(self._fields.get(name, 0), count)


def _usages(event: Any) -> Iterator[Mapping[str, Any]]:
    """The usage objects of one answer or event, at the places where engines put them."""
    if not isinstance(event, dict):
        return
    for holder in (event, event.get("response"), event.get("message")):
        if isinstance(holder, dict) and isinstance(usage := holder.get("usage"), dict):
            yield usage
    if isinstance(told := event.get("meta_info"), dict):  # SGLang's /generate
        yield told


def _tail_usages(tail: bytes) -> Iterator[Mapping[str, Any]]:
    """The usage object in the end of a JSON text: one that stands at most two objects deep."""
    for member in reversed(list(_MEMBER.finditer(tail))[-MOST_MEMBERS:]):
        end = _closed(tail, member.end(), 1)
        if end is None or not (_closed(tail, end, 1, last=True) or _closed(tail, end, 2, last=True)):
            continue
        try:
            usage = orjson.loads(tail[member.end() : end])
        except ValueError:
            continue
        yield usage
        return


def _closed(text: bytes, at: int, depth: int, *, last: bool = False) -> int | None:
    """Where ``depth`` open brackets are closed, from ``at`` on; with ``last`` only if nothing but blanks follows."""
    if not last:
        depth -= 1
    for found in _STRING_OR_BRACKET.finditer(text, at):
        sign = text[found.start()]
        if sign == 0x22:
            continue
        depth += 1 if sign in b"[{" else -1
        if depth == 0:
            return found.end() if not last or not text[found.end() :].strip() else None
    return None


def _counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """The counts of a usage object under our names."""
    found: dict[str, int] = {}
    for name, spellings in _SPELLINGS.items():
        for spelling in spellings:
            if usage.get(spelling) is not None:
                found[name] = _count(usage[spelling])
                break
    for spelling in ("prompt_tokens_details", "input_tokens_details"):
        details = usage.get(spelling)
        if isinstance(details, dict) and details.get("cached_tokens") is not None:
            found["cached"] = _count(details["cached_tokens"])
    return found


_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "input": ("prompt_tokens", "input_tokens"),
    "output": ("completion_tokens", "output_tokens"),
    "read": ("cache_read_input_tokens",),
    "written": ("cache_creation_input_tokens",),
    "cached": ("cached_tokens",),
}
"""Anthropic's ``input_tokens`` are those beside the cache: what was read from it and written to it comes on top."""


def _count(value: object) -> int:
    """A count as a whole number; 0 for what is none."""
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
        return 0
    return value
