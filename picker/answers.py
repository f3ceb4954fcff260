"""
What responses tell: who is to read them, and what becomes of the usage they tell.

A reading is made where the gateway shows the response's body and something is to be read or put back in it; elsewhere
it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from picker.responses.counts import Counts
from picker.responses.reading import Reading
from picker.responses.usage import Usage


class Metrics(Protocol):
    """Where usage is told."""

    def used(self, model: str, target: str, *, given: int, made: int, cached: int | None) -> None:
        """The tokens of one request, ``model`` and ``target`` being told apart within bounds."""
        ...


@dataclass(frozen=True, slots=True)
class Expected:
    """What a pick knew of a request, to be held against what the engine tells."""

    model: str
    """The client's name for the model, as far as it is one that an operator knows."""
    target: str
    address: str
    """``host:port`` of the worker."""
    cached: int | None
    """Prompt tokens reckoned to be cached there; None: the prompt's tokens are not known."""


class Answers:
    """Makes readings, and hears from them."""

    def __init__(self, metrics: Metrics, *, read_usage: bool) -> None:
        self.counts = Counts()
        self._metrics, self._read_usage = metrics, read_usage
        self._open: dict[str, Reading] = {}

    def __len__(self) -> int:
        return len(self._open)

    def reading(
        self, booking_id: str, expected: Expected, *, name: str = "", usage: bool = True
    ) -> Reading | None:
        """
        What is to read a response that the gateway shows; None: nobody.

        ``name`` is the model's name to be put back, if any; ``usage`` says whether such a response tells it.
        """
        usage = usage and self._read_usage
        if not usage and not name:
            return None
        told = partial(self._told, expected) if usage else None
        reading = Reading(self.counts, told=told, name=name)
        self._open[booking_id] = reading
        return reading

    def over(self, booking_id: str) -> None:
        """The stream of that booking is over."""
        reading = self._open.pop(booking_id, None)
        if reading is not None:
            reading.over()

    def _told(self, expected: Expected, usage: Usage, served: str) -> None:
        self._metrics.used(
            expected.model, expected.target, given=usage.input, made=usage.output, cached=usage.cached
        )
        if usage.cached is None or expected.cached is None or served not in {"", expected.address}:
            return
        self.counts.cached_tokens_told += usage.cached
        self.counts.cached_tokens_predicted += expected.cached
        self.counts.overestimated += usage.cached < expected.cached
