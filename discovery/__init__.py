"""
Who is there: peers (other replicas) and workers (engine endpoints).

Here: what is found (`found`), how an address is written (`address`), the seam (`source`), the sources behind it
(`static`, `headless`, `watched`, `kubernetes`), chosen by name in `backends`. Each yields the whole known set whenever
it changes, and keeps the last known set while its own source is away.

Not here: what a worker carries, or whether it should be picked.
"""

from discovery.address import AddressError, read_address
from discovery.backends import open_peers, open_workers
from discovery.found import Endpoint, Peer
from discovery.source import Counts, DiscoveryError, PeerSource, WorkerSource

__all__ = [
    "AddressError", "Counts", "DiscoveryError", "Endpoint", "Peer", "PeerSource", "WorkerSource", "open_peers",
    "open_workers", "read_address",
]  # fmt: skip
