"""Is as much booked as is carried? Where nothing names requests, that is all that can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from chaos.checkers import TRUTH
from chaos.checkers.bookings import ENDING_SECONDS
from chaos.checkers.bounds import SLACK_SECONDS, VISIBLE_SECONDS, Clock
from chaos.story import Story, View
from chaos.verdict import Finding, judged, unknown


@dataclass(frozen=True, slots=True)
class AsManyBooked:
    """In every look, at least as many requests are booked on each worker as it carries.

    Reports count requests and name none: where no log tells which of a dead replica's requests run on, a view may take
    one for another, and only their number is exact.
    """

    needs: ClassVar[frozenset[str]] = frozenset({TRUTH})

    name: str = "as many requests are booked on each worker as it carries, in every view"

    def judge(self, story: Story) -> Finding:
        """Counts what began well before a look and ended well after it."""
        clock, lines, compared = Clock(story), [], 0
        for view in story.all_views():
            if clock.rebuilding(view.replica, view.told):
                continue
            for worker in story.workers.values():
                carried = sum(_surely(each.since, each.until, view) for each in story.on(worker))
                booked = view.sums.get(worker, (0, 0, 0))[2]
                compared += carried > 0
                if booked < carried:
                    at = view.told - story.begun
                    lines.append(
                        f"{view.replica} at {at:.2f} s books {booked} on {worker}, which carries {carried}"
                    )
        if not compared:
            return unknown(self.name, "nothing was carried for long enough")
        return judged(self.name, lines, f"{compared} times compared", "looks with too few", compared=compared)


def _surely(since: float, until: float, view: View) -> bool:
    return since + VISIBLE_SECONDS + SLACK_SECONDS <= view.asked and view.told + ENDING_SECONDS <= until
