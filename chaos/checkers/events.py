"""Does every replica know in the end what every engine holds?"""

from __future__ import annotations

from dataclasses import dataclass

from chaos.story import Story
from chaos.verdict import Finding, failed, passed, unknown

NOTE = "indexes"
"""Name of the note that tells it, see `chaos.indexes`."""


@dataclass(frozen=True, slots=True)
class IndexesTrue:
    """Some seconds after the heal every replica's index has, for every worker, as many blocks as its engine holds."""

    within: float = 10.0

    @property
    def name(self) -> str:
        """What it demands."""
        return f"every index is what the engines hold within {self.within:g} s"

    def judge(self, story: Story) -> Finding:
        """Reads what the scenario found when it compared them."""
        notes = [each.value for each in story.notes if each.value.get("name") == NOTE]
        if not notes:
            return unknown(self.name, "the scenario did not compare them")
        last = notes[-1]
        held, told = last["held"], last["told"]
        lines = [
            f"{replica} has {counts.get(worker, 0)} blocks of {worker}, which holds {held[worker]}"
            for replica, counts in told.items()
            for worker in held
            if counts.get(worker, 0) != held[worker]
        ]
        if not sum(held.values()):
            return unknown(self.name, "no engine holds anything")
        said = f"{sum(held.values())} blocks on {len(held)} engines, in {len(told)} indexes"
        if lines or last["waited"] > self.within:
            return failed(self.name, f"{len(lines)} differences after {last['waited']:.1f} s: {said}", lines)
        return passed(self.name, f"{said}, after {last['waited']:.1f} s", waited=last["waited"])
