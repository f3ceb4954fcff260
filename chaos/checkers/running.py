"""Did the replicas themselves keep running?"""

from __future__ import annotations

from dataclasses import dataclass

from chaos.story import RESTARTS, Story
from chaos.verdict import Finding, judged


@dataclass(frozen=True, slots=True)
class KeptRunning:
    """No replica ended by itself: crashed, or was killed for want of memory or of answers to its probes."""

    name: str = "no replica ends by itself"

    def judge(self, story: Story) -> Finding:
        """Looks for containers that were started again in their pods; no fault of the suite does that."""
        lines = [
            f"{each.target} at {each.begun - story.begun:.2f} s: {each.proof.get('ended') or 'nobody knows how'}"
            for each in story.faults
            if each.kind == RESTARTS
        ]
        return judged(self.name, lines, f"{len(story.replicas)} replicas, none did", "did")
