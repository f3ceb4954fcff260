"""LoRA adapters: what a worker holds as far as is known, and what follows for a request that needs one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

ADAPTER = "adapter"
"""`Reason.left_out` of a worker that lacks the request's adapter, and the name of what loading it adds to a price."""


class Holding(Enum):
    """How a worker stands to one adapter."""

    AT_HAND = "at hand"  # it may begin at once
    LOADS = "loads"  # it must load the adapter first, or put it in another's place, if it can
    LACKS = "lacks"  # it says what it holds, and this is not among it


class Held(NamedTuple):
    """The adapters of one worker. None: that source does not say. A tuple, because a pick may make one per worker."""

    labelled: frozenset[str] | None = None
    """By its labels: all that it holds, in its operator's words."""
    listed: frozenset[str] | None = None
    """By its list of models: all that are loaded."""
    running: frozenset[str] | None = None
    """By its metrics: those that requests run or wait for. It may hold others that rest."""
    most: int | None = None
    """How many it can run at one time."""

    @property
    def names(self) -> frozenset[str]:
        """All that it is known to hold."""
        return (self.labelled or _NONE) | (self.listed or _NONE) | (self.running or _NONE)

    def holding(self, adapter: str) -> Holding:
        """How it stands to that adapter."""
        running = self.running or _NONE
        if adapter in running:
            return Holding.AT_HAND
        if (self.labelled and adapter in self.labelled) or (self.listed and adapter in self.listed):
            # an adapter beyond the slots waits until another one's requests are over
            return Holding.LOADS if self.most and len(running) >= self.most else Holding.AT_HAND
        return Holding.LOADS if self.labelled is None and self.listed is None else Holding.LACKS


_NONE: frozenset[str] = frozenset()


def narrowed(
    holdings: Mapping[str, Holding], *, load_blocks: float
) -> tuple[frozenset[str], Mapping[str, float]]:
    """Who is left out, and what is added to whose price, of these workers, all of which may be chosen else.

    Workers that lack the adapter are left out as long as another one is there. Where all lack it nobody is: an engine
    that can fetch adapters does so, one that cannot tells the client. Those that must load it first pay
    ``load_blocks``: a worker at which the adapter is at work draws its requests up to that much more load, and no more,
    so that one busy adapter spreads over the pool.
    """
    lacking = frozenset(worker for worker, holding in holdings.items() if holding is Holding.LACKS)
    if len(lacking) == len(holdings):
        return _NONE, {}
    loading = [worker for worker, holding in holdings.items() if holding is Holding.LOADS]
    if not load_blocks or len(loading) + len(lacking) == len(holdings):
        return lacking, {}  # what everybody pays decides nothing
    return lacking, dict.fromkeys(loading, load_blocks)
