"""When choosing on a shared view is no longer as good as choosing on the plane's exact sums.

A view is late by its *staleness*; in that time the other replicas place ``rate * staleness`` requests that it does not
show. With that number small a view is as good as the truth; with it large all replicas run to the same worker. The more
workers there are, the sooner: the least loaded of many is a better choice than the rest, and all see the same one.
"""

from __future__ import annotations

UNSEEN_BY_WORKERS = 3.3
"""Unseen requests times workers from which the busiest worker carries 5 % more in ``eventual`` than in ``atomic``.

Measured by `picker bench race` (the sweep in docs/race.md): 8 replicas, 4 to 128 workers, eight requests under way on
each, load alone in the price; the product lay between 3.2 and 4.1 throughout.
"""


def unseen_requests(rate: float, staleness: float) -> float:
    """Requests that the other replicas place, in the mean, before a view shows them.

    ``rate``: requests per second of the whole pool; ``staleness``: seconds until a booking shows in a view.
    """
    return rate * staleness


def atomic_pays_above(workers: int) -> float:
    """Unseen requests from which mode ``atomic`` pays in a pool of so many workers; infinite below two workers."""
    return UNSEEN_BY_WORKERS / workers if workers > 1 else float("inf")


def atomic_pays(rate: float, staleness: float, workers: int) -> bool:
    """Whether the busiest worker carries noticeably less in mode ``atomic`` than in ``eventual``."""
    return unseen_requests(rate, staleness) > atomic_pays_above(workers)
