"""Verdicts: pass, fail or unknown, with the evidence. The worst one wins, and unknown is no pass.

What a target cannot tell at all is *not applicable*: shown, never counted, and never taken for a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What a check says. The worst of several wins: fail, then unknown, then pass."""

    PASS = "pass"  # noqa: S105 - no password
    UNKNOWN = "unknown"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"


_BADNESS = {Verdict.PASS: 0, Verdict.UNKNOWN: 1, Verdict.FAIL: 2}
MOST_EVIDENCE = 12


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst one; nothing checked is unknown, for nothing was shown."""
    told = (each for each in verdicts if each is not Verdict.NOT_APPLICABLE)
    return max(told, key=_BADNESS.__getitem__, default=Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    name: str
    """The check's name, with its bounds: ``picks within 100 ms (p99)``."""
    verdict: Verdict
    summary: str
    """One line that says why, with numbers."""
    evidence: tuple[str, ...] = ()
    """What broke it, a line each; the first `MOST_EVIDENCE`."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "invariant"
    """``invariant``, or ``happened``: something that must be in the history for the run to mean anything."""


def passed(name: str, summary: str, **numbers: Any) -> Finding:
    """It holds."""
    return Finding(name, Verdict.PASS, summary, numbers=numbers)


def unknown(name: str, summary: str, evidence: Iterable[str] = (), **numbers: Any) -> Finding:
    """Nobody can tell: something is missing that the check needs."""
    return Finding(name, Verdict.UNKNOWN, summary, _some(evidence), numbers)


def failed(name: str, summary: str, evidence: Iterable[str] = (), **numbers: Any) -> Finding:
    """It is broken."""
    return Finding(name, Verdict.FAIL, summary, _some(evidence), numbers)


def not_applicable(name: str, summary: str) -> Finding:
    """This target cannot tell."""
    return Finding(name, Verdict.NOT_APPLICABLE, summary)


def judged(name: str, complaints: Iterable[str], good: str, bad: str, **numbers: Any) -> Finding:
    """Failed with the complaints, or passed if there is none. ``bad`` is preceded by their number."""
    lines = list(complaints)
    if not lines:
        return passed(name, good, **numbers)
    return failed(name, f"{len(lines)} {bad}", lines, **numbers)


def _some(lines: Iterable[str]) -> tuple[str, ...]:
    found = list(lines)
    if len(found) > MOST_EVIDENCE:
        found[MOST_EVIDENCE - 1 :] = [f"... and {len(found) - MOST_EVIDENCE + 1} more"]
    return tuple(found)
