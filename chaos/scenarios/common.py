"""What several scenarios run on: equal topologies share one cluster."""

from __future__ import annotations

from chaos.checkers import Check
from chaos.checks import picks_within
from chaos.load import OpenLoop
from chaos.topology import Topology

BRISK = OpenLoop(rate=12, long_share=0.25, long_tokens=(100, 190))
"""Enough under way for any moment to matter, and the last answer comes within some seconds."""
WIRED = Topology(links=("*>plane", "*>nats"))
"""Every way to the plane and to the events goes through a wire."""


def in_time(during: str) -> Check:
    """Picks go on in time during a fault: one that waits for what is away makes nearly all of them late.

    The slowest few say more of the machine than of the fault, where everything runs on one.
    """
    return picks_within(ms=250, during=during, share=0.95)
