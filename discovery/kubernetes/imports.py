"""What an InferencePoolImport says: which other clusters serve the pool. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_CLUSTERS = 64
"""Most clusters that one import may name."""


def read_import(entry: Mapping[str, Any]) -> frozenset[str]:
    """The names of the exporting clusters, as every controller tells them in the status. Never raises."""
    status = entry.get("status")
    controllers = status.get("controllers") if isinstance(status, dict) else None
    names = {
        cluster["name"]
        for controller in (controllers if isinstance(controllers, list) else ())
        if isinstance(controller, dict)
        for cluster in _list(controller.get("exportingClusters"))
        if isinstance(cluster, dict)
        and isinstance(cluster.get("name"), str)
        and 0 < len(cluster["name"]) <= 253
    }
    return frozenset(sorted(names)[:MAX_CLUSTERS])


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
