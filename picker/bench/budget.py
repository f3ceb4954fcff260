"""A promise in a number, and whether it was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Budget:
    """What was promised and what was measured, in the same unit."""

    name: str
    measured: float
    limit: float
    unit: str = ""
    at_least: bool = False
    """The measured value may not be below the limit; False: not above it."""

    @property
    def passed(self) -> bool:
        """Whether the promise was kept."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def promise(self) -> str:
        """The limit in words."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{'>=' if self.at_least else '<='} {self.limit:g}{unit}"

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "measured": self.measured,
            "budget": self.promise,
            "passed": self.passed,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """What a bench found: its numbers in the shape that is compared over time, and its budgets."""

    name: str
    numbers: Mapping[str, Any]
    conditions: Mapping[str, Any]
    """What was measured on: sizes, seed, versions."""
    budgets: Sequence[Budget] = ()

    @property
    def passed(self) -> bool:
        """Whether every budget was kept."""
        return all(budget.passed for budget in self.budgets)

    def as_json(self) -> dict[str, Any]:
        """The numbers, then conditions, budgets, and whether all were kept."""
        return {
            **self.numbers,
            "conditions": dict(self.conditions),
            "budgets": [budget.as_json() for budget in self.budgets],
            "passed": self.passed,
        }
