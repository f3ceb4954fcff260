"""Do the replicas agree once everything is healed?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chaos.checkers.bounds import REBUILD_SECONDS, SLACK_SECONDS, VISIBLE_SECONDS, Clock
from chaos.story import Story, View
from chaos.verdict import Finding, judged, unknown


@dataclass(frozen=True, slots=True)
class ViewsAgree:
    """From some seconds after the last heal on, what one view shows for a while every other one shows too."""

    within: float = REBUILD_SECONDS
    slack: float = SLACK_SECONDS

    @property
    def name(self) -> str:
        """What it demands."""
        return f"views agree {self.within:g} s (+{self.slack:g} s) after the last heal"

    def judge(self, story: Story) -> Finding:
        """Compares how long each view shows each booking, and the last looks as they are."""
        begin = story.healed + self.within + self.slack
        if not story.views or not set(story.members) <= set(story.views):
            return unknown(
                self.name, f"only {', '.join(story.views) or 'none'} of the replicas showed a view"
            )
        late = {name: [view for view in story.views[name] if view.asked >= begin] for name in story.members}
        if not all(late.values()):
            silent = ", ".join(name for name, views in late.items() if not views)
            return unknown(self.name, f"{silent} showed no view after the heal")
        lines = [*_alone(story, late), *_different_ends({name: views[-1] for name, views in late.items()})]
        compared = sum(len(views) for views in late.values())
        return judged(self.name, lines, f"{compared} looks compared", "differences", looks=compared)


def _alone(story: Story, late: Mapping[str, list[View]]) -> Iterator[str]:
    """Bookings that one view shows for so long that another one should have shown them too."""
    clock = Clock(story)
    shown: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for name, views in late.items():
        for view in views:
            for id_ in view.bookings:
                first, _ = shown[id_].get(name, (view.told, 0.0))
                shown[id_][name] = (first, view.asked)
    for id_, spans in shown.items():
        for name, (first, last) in spans.items():
            begin, end = first + VISIBLE_SECONDS, last - 0.1
            for other, views in late.items():
                if other == name:
                    continue
                looks = [view for view in views if begin <= view.asked <= view.told <= end]
                if clock.starved(first, last):
                    continue
                if len(looks) > 1 and not any(id_ in view.bookings for view in looks):
                    yield (
                        f"{name} shows {id_} from {first - story.begun:.2f} s to {last - story.begun:.2f} s;"
                        f" {other} never does in {len(looks)} looks"
                    )


def _different_ends(last: Mapping[str, View]) -> Iterator[str]:
    epochs = {name: view.epoch for name, view in last.items()}
    if len(set(epochs.values())) > 1:
        yield f"the last looks are of different epochs of the plane: {epochs}"
    ids = {id_ for view in last.values() for id_ in view.bookings}
    for id_ in sorted(ids):
        holders = [name for name, view in last.items() if id_ in view.bookings]
        if len(holders) < len(last):
            yield f"at the end only {', '.join(holders)} shows {id_}"
