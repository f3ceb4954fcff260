"""When choosing on a shared view is no longer as good as choosing on the plane's exact sums.

A view is late by its *staleness*; in that time the other replicas place ``rate * staleness`` requests that it does not
show. That product alone says how far picks go astray: with it small a view is as good as the truth, with it large all
replicas run to the same worker.
"""

from __future__ import annotations

ATOMIC_PAYS_ABOVE = 0.2
"""Unseen requests (arrivals of the whole pool per second * staleness in seconds) from which `atomic` pays."""


def unseen_requests(rate: float, staleness: float) -> float:
    """Requests that the other replicas place, in the mean, before a view shows them.

    ``rate``: requests per second of the whole pool; ``staleness``: seconds until a booking shows in a view.
    """
    return rate * staleness


def atomic_pays(rate: float, staleness: float) -> bool:
    """Whether the busiest worker carries noticeably less in mode ``atomic`` than in ``eventual``."""
    return unseen_requests(rate, staleness) > ATOMIC_PAYS_ABOVE
