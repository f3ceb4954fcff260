"""How a response's body is built, told from its headers."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from picker.responses.counts import Unreadable


class Responded(Protocol):
    """Response headers, as far as a reading asks for them."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def served(self) -> str:
        """``host:port`` that answered, where the gateway says; else empty."""
        ...

    @property
    def content_type(self) -> str:
        """Lower case, parameters included."""
        ...

    @property
    def content_encoding(self) -> str:
        """Lower case; empty: identity."""
        ...


class Shape(StrEnum):
    """What pieces are made of."""

    JSON = "json"  # one JSON object
    LINES = "lines"  # JSON objects on lines of their own: an event stream


_LINES = frozenset({"text/event-stream", "application/x-ndjson", "application/jsonl"})


def shape_of(response: Responded) -> Shape | Unreadable:
    """The shape that content type and encoding name, or why the body is not read."""
    if response.content_encoding not in {"", "identity"}:
        return Unreadable.ENCODED
    kind = response.content_type.partition(";")[0].strip()
    if kind in _LINES:
        return Shape.LINES
    if kind == "application/json" or kind.endswith("+json"):
        return Shape.JSON
    return Unreadable.CONTENT_TYPE
