"""Checks of a long run: what a replica holds stays flat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from chaos.story import Story
from chaos.verdict import Finding, judged, unknown

FEWEST_LOOKS = 20
MOST_FILLING = 0.6


@dataclass(frozen=True, slots=True)
class Flat:
    """A gauge of each replica does not grow: its last fifth's median is at most so much above an earlier fifth's.

    What comes before that one is left out: caches fill and the interpreter warms up.
    """

    gauge: str
    """One of `chaos.observe.GAUGES`."""
    share: float = 0.1
    """Growth that is allowed."""
    least: float = 0.0
    """Growth below this is none, whatever its share."""
    filling: float = 0.2
    """Share of the time that is left out, at most `MOST_FILLING`: bounded caches are full after it."""
    only: tuple[str, ...] = ()
    """Replicas that it is asked of; empty: all of them."""

    def __post_init__(self) -> None:
        """Raises ValueError where the last fifth would be compared with itself."""
        if not 0 <= self.filling <= MOST_FILLING:
            raise ValueError(f"filling is {self.filling}, it must be between 0 and {MOST_FILLING}")

    @property
    def name(self) -> str:
        """What it demands."""
        whose = f" of {', '.join(self.only)}" if self.only else ""
        return f"{self.gauge}{whose} is flat within {self.share:.0%}"

    def judge(self, story: Story) -> Finding:
        """Compares fifths of each replica's looks."""
        lines, grown = [], {}
        for replica in self.only or story.header["replicas"]:
            values = self._values(story.gauges.get(replica, ()))
            if len(values) < FEWEST_LOOKS:
                return unknown(self.name, f"{len(values)} looks at {replica} are too few to tell")
            fifth = len(values) // 5
            full = int(self.filling * len(values))
            before, after = median(values[full : full + fifth]), median(values[-fifth:])
            grown[replica] = round(after - before, 1)
            if after - before > max(self.least, self.share * before):
                lines.append(f"{replica}: {before:g} early, {after:g} at the end")
        most = max(grown.values(), default=0.0)
        return judged(self.name, lines, f"it grew by {most:g} at most", "replicas grew", grown=grown)

    def _values(self, series: Sequence[tuple[float, Mapping[str, float]]]) -> list[float]:
        return [gauges[self.gauge] for _, gauges in series if self.gauge in gauges]
