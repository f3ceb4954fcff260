"""What views must show while the plane, or a way to it, is away or slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from chaos.checkers import TRUTH
from chaos.checkers.bookings import ENDING_SECONDS, owners_of
from chaos.checkers.bounds import REBUILD_SECONDS, SLACK_SECONDS, VISIBLE_SECONDS
from chaos.story import Carried, FaultLife, Story, View
from chaos.verdict import Finding, failed, judged, passed, unknown

PEERS = "picker_peers"


@dataclass(frozen=True, slots=True)
class NeverEmpty:
    """While a fault is on, and while views are built anew after it, no view reads zero where it must know of load.

    A view must know of what was carried before the fault, and of what its own replica picked since.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    during: str
    """Kind of fault."""

    @property
    def name(self) -> str:
        """What it demands."""
        return f"no load reads as none during {self.during}"

    def judge(self, story: Story) -> Finding:
        """Looks at every look in that time at which something was carried that the view must know."""
        faults = [fault for fault in story.faults if fault.kind == self.during]
        if not faults:
            return unknown(self.name, f"no {self.during} in the history")
        owners, looks, lines = owners_of(story), 0, []
        for fault in faults:
            for view in _looks(story, fault):
                known = sum(_known(each, view, fault, owners) for each in story.carried)
                looks += known > 0
                if known and not sum(each[2] for each in view.sums.values()):
                    at = view.told - story.begun
                    lines.append(
                        f"{view.replica} at {at:.2f} s reads zero; {known} that it knew of were carried"
                    )
        if not looks:
            return unknown(self.name, "at no look in that time was anything carried that a view had to know")
        return judged(
            self.name, lines, f"{looks} looks with load, none read zero", "looks read zero", looks=looks
        )


def _looks(story: Story, fault: FaultLife) -> Iterator[View]:
    end = (story.ended if fault.healed is None else fault.healed) + REBUILD_SECONDS
    for view in story.all_views():
        if fault.begun <= view.asked <= end and view.replica != fault.target:
            yield view


def _known(each: Carried, view: View, fault: FaultLife, owners: Mapping[str, str]) -> bool:
    if not (each.since + VISIBLE_SECONDS <= view.asked and view.told + ENDING_SECONDS <= each.until):
        return False
    return each.since + VISIBLE_SECONDS <= fault.begun or owners.get(each.booking) == view.replica


@dataclass(frozen=True, slots=True)
class SeenByAll:
    """Even while a fault is on, every view shows what engines carry within some seconds: the fault excuses nothing."""

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    during: str
    """Kind of fault."""
    within: float = VISIBLE_SECONDS
    slack: float = SLACK_SECONDS

    @property
    def name(self) -> str:
        """What it demands."""
        return f"during {self.during} every view shows within {self.within:g} s (+{self.slack:g} s) what is carried"

    def judge(self, story: Story) -> Finding:
        """Looks for what was carried for so long in that time, and was in no look of some view."""
        faults = [fault for fault in story.faults if fault.kind == self.during]
        lines, checked = [], 0
        for fault in faults:
            end = story.ended if fault.healed is None else fault.healed
            for each in story.carried:
                begin = max(each.since, fault.begun) + self.within + self.slack
                for replica, views in story.views.items():
                    looks = [
                        view
                        for view in views
                        if begin <= view.asked and view.told <= min(end, each.until - ENDING_SECONDS)
                    ]
                    checked += len(looks)
                    missing = [view for view in looks if each.booking not in view.bookings]
                    if missing and each.booking:
                        at = missing[0].told - story.begun
                        lines.append(f"{replica} at {at:.2f} s does not show {each.booking} on {each.worker}")
        if not checked:
            return unknown(self.name, "nothing was carried for so long in that time")
        return judged(
            self.name, lines, f"{checked} times looked for and found", "were not shown", looks=checked
        )


@dataclass(frozen=True, slots=True)
class PeersKept:
    """Once replicas have found each other, none is without peers again, whatever the name server says."""

    name: str = "the last known peers stay, whatever the name server says"

    def judge(self, story: Story) -> Finding:
        """Looks at the gauge of known peers."""
        lines, looks = [], 0
        for replica, series in story.gauges.items():
            had = 0.0
            for t, gauges in series:
                if PEERS not in gauges:
                    continue
                looks += 1
                if gauges[PEERS] < had:
                    lines.append(
                        f"{replica} at {t - story.begun:.2f} s knows {gauges[PEERS]:g} peers, after {had:g}"
                    )
                had = gauges[PEERS]
        if not looks:
            return unknown(self.name, "no replica said how many peers it knows")
        return judged(self.name, lines, f"in {looks} looks", "times peers were lost", looks=looks)


@dataclass(frozen=True, slots=True)
class PeersDiffered:
    """At some moment replicas knew different numbers of peers."""

    name: str = "replicas knew different peers at the same time"

    def judge(self, story: Story) -> Finding:
        """Compares the gauges of two replicas at looks close to each other."""
        looks = sorted(
            (t, replica, gauges[PEERS])
            for replica, series in story.gauges.items()
            for t, gauges in series
            if PEERS in gauges
        )
        pairs = [(a, b) for a, b in pairwise(looks) if a[1] != b[1] and a[2] != b[2] and b[0] - a[0] < 0.5]
        said = f"{len(pairs)} pairs of looks within half a second differ"
        return passed(self.name, said) if pairs else failed(self.name, said)
