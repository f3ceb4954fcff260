"""What must have happened, and what must hold: pure functions of a history.

A check is a frozen value with a ``name`` and ``judge(story) -> Finding``. It never raises on a story: what it cannot
tell is *unknown*. Whoever calls it turns an exception of a check into unknown too.

A check may say in ``needs`` what only some targets can tell (`TRUTH`, `AUDIT`); elsewhere it is *not applicable*.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from chaos.story import Story
from chaos.verdict import Finding, not_applicable, unknown

TRUTH, AUDIT = "truth", "audit"
LACKING = {
    TRUTH: "engines here do not tell what they carry: only simulated ones do",
    AUDIT: "the plane's own server is asked on the local target only",
}
"""What a target may lack -> why, for people."""


@runtime_checkable
class Check(Protocol):
    """One invariant, or one thing that must have happened."""

    @property
    def name(self) -> str:
        """What it demands, with its bounds."""
        ...

    def judge(self, story: Story) -> Finding:
        """Whether the story keeps it."""
        ...


def judge(check: Check, story: Story) -> Finding:
    """Its finding; a check that breaks finds nothing out."""
    lacking = frozenset(getattr(check, "needs", ())) & story.lacks
    if lacking:
        return not_applicable(check.name, "; ".join(LACKING[each] for each in sorted(lacking)))
    try:
        return check.judge(story)
    except Exception as error:  # noqa: BLE001 - a broken check must not pass, nor hide what the others found
        return unknown(check.name, f"the check itself broke: {type(error).__name__}: {error}")
