"""Did the suite itself keep pace? A starved machine must not be taken for a broken product.

The wires, the load and the looks share the suite's event loop. While it stands still nothing passes a wire, nobody
is asked, and most likely the replicas got no processor either: such times are written down, and no bound counts them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from chaos.history import Writer
from chaos.story import Story
from chaos.verdict import Finding, passed, unknown

TICK_SECONDS = 0.05
STALL_SECONDS = 0.4
"""From so much lateness on a tick is written down."""


async def note_stalls(history: Writer) -> None:
    """Until cancelled: write down when this event loop stood still."""
    due = time.monotonic()
    while True:
        due += TICK_SECONDS
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        late = time.monotonic() - due
        if late > STALL_SECONDS:
            history.write("run", "stall", "info", seconds=round(late, 3))
        due = max(due, time.monotonic() - TICK_SECONDS)


@dataclass(frozen=True, slots=True)
class KeptPace:
    """The suite was never starved for long, so that what it saw is what was."""

    longest: float = 3.0
    share: float = 0.15
    """Of the run."""

    @property
    def name(self) -> str:
        """What it demands."""
        return f"the suite kept pace: no stall over {self.longest:g} s, {self.share:.0%} of the run at most"

    def judge(self, story: Story) -> Finding:
        """Adds up the stalls."""
        lengths = [end - begin for begin, end in story.stalls]
        most, total = max(lengths, default=0.0), sum(lengths)
        said = f"{len(lengths)} stalls, {total:.1f} s in all, the longest {most:.1f} s"
        if most > self.longest or total > self.share * (story.ended - story.begun):
            return unknown(self.name, f"{said}: this machine is too busy to tell anything")
        return passed(self.name, said)
