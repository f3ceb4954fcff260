"""What several scenarios run on: equal topologies share one cluster."""

from __future__ import annotations

from chaos.load import OpenLoop
from chaos.topology import Topology

BRISK = OpenLoop(rate=12, long_share=0.2, long_tokens=(90, 160))
"""Enough under way for any moment to matter, and the last answer comes within some seconds."""
WIRED = Topology(links=("*>plane", "*>nats"))
"""Every way to the plane and to the events goes through a wire."""
