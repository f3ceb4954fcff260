"""Mutants of leases."""

from __future__ import annotations

from typing import Any

from stateplane.booking import Rules

A_DAY = 86_400.0


def never_falls() -> None:
    """Whatever lease the settings say, a day is taken."""
    rightly = Rules.__init__

    def wrongly(self: Rules, *args: Any, **named: Any) -> None:
        rightly(self, *args, **named)
        object.__setattr__(self, "lease", A_DAY)

    setattr(Rules, "__init__", wrongly)  # noqa: B010 - a plain assignment to a method is none that a type allows
