"""What an InferenceObjective says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from discovery.kubernetes.pools import ObjectError, mapping, number

MAX_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Objective:
    """One InferenceObjective."""

    pool: str
    """Name of the pool that it is for; empty: it does not say."""
    priority: int = 0
    """Higher is served first; below 0 goes first when there is too much."""


def read_objective(entry: Mapping[str, Any]) -> Objective:
    """
    Read an InferenceObjective; an unset priority is 0.

    Raises:
        ObjectError: the priority is no whole number of 32 bits.

    """
    spec = mapping(entry.get("spec"), "spec")
    reference = spec.get("poolRef")
    name = reference.get("name") if isinstance(reference, dict) else None
    priority = 0 if spec.get("priority") is None else number(spec["priority"])
    if priority is None or abs(priority) > MAX_PRIORITY:
        raise ObjectError(
            f"spec.priority must be a whole number of 32 bits, not {str(spec['priority'])[:60]!r}"
        )
    return Objective(name if isinstance(name, str) else "", priority)


def priorities(objectives: Mapping[str, Objective], pool: str) -> Mapping[str, int]:
    """Priority by the objective's name, of those that are for the pool or name none."""
    return {
        key.rpartition("/")[2]: each.priority
        for key, each in sorted(objectives.items())
        if each.pool in {"", pool}
    }
