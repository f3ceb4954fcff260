"""Criteria for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from picker.core.criteria import Traits, WorkerTraits


@dataclass
class Judge:
    """Says what the test says."""

    bars: Callable[[WorkerTraits], Any] = lambda _: ""
    blocks: Callable[[WorkerTraits], Any] = lambda _: 0.0


@dataclass
class Made:
    """A criterion that gives that judge, or raises, and remembers what it was asked."""

    judge: object | None
    seam: int = 1
    asked: list[Traits] = field(default_factory=list)

    def prepare(self, request: Traits) -> Any:
        self.asked.append(request)
        if isinstance(self.judge, Exception):
            raise self.judge
        return self.judge


def raising(error: Exception) -> Callable[[WorkerTraits], Any]:
    def ask(_: WorkerTraits) -> Any:
        raise error

    return ask
