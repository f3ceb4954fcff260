"""Where peers and workers come from, and what workers report."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    field_validator,
)

from picker.settings.part import Part, Seconds, Words, also

API_OBJECTS = ("inferenceobjectives", "inferencemodelrewrites", "inferencepoolimports")


class DiscoverySettings(Part):
    """Peers and workers."""

    title = "Discovery"

    peer_source: Literal["", "static", "dns", "endpointslices"] = ""
    """
    Where peers come from: `static` (`PICKER_PEERS`), `dns` or `endpointslices`, both of `PICKER_PEER_SERVICE`. Empty:
    `static` where `PICKER_PEERS` is set, else `dns`, which needs no rights on the API server.
    """
    peers: Words = ()
    """Fixed peers, `host:port` or names, separated by commas. Overrides the Service."""
    peer_service: str = Field(default="", validation_alias=also("PEER_SERVICE", "DYN_EPP_PEER_SERVICE"))
    """DNS name of the headless Service of all replicas; its A and AAAA records are the peers."""
    dns_server: str = ""
    """`host:port` of the DNS server to ask. Empty: the system's."""
    dns_refresh_seconds: Seconds = Field(default=5.0, gt=0, le=3600)
    """Longest time between two look-ups; a shorter TTL of the records is honoured."""
    worker_source: Literal["", "file", "kubernetes"] = ""
    """
    Where workers come from: `file` (`PICKER_WORKERS_FILE`) or `kubernetes` (the InferencePool named by
    `PICKER_POOL_NAME` and its ready pods). Empty: `file` where a file is set, else `kubernetes` where the replica runs
    in a pod or `PICKER_KUBECONFIG` is set.
    """
    kubeconfig: Path | None = None
    """How to reach the API server. Unset: as the pod's ServiceAccount."""
    api_objects: Words = ()
    """
    API objects of the pool that are read beside it: `inferenceobjectives` (priorities), `inferencemodelrewrites`
    (beside `PICKER_MODEL_REWRITE_FILE`), `inferencepoolimports` (workers of other clusters). Each needs its right.
    """
    import_kubeconfig: Path | None = None
    """
    How to reach the clusters that an InferencePoolImport names: a kubeconfig file with a context for each, of the
    cluster's name. Their pods must be reachable by their addresses.
    """

    @field_validator("api_objects")
    @classmethod
    def _known_objects(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in API_OBJECTS:
                raise ValueError(f"{name!r} is not read; allowed are {', '.join(API_OBJECTS)}")
        return value

    workers_file: Path | None = None
    """
    File of workers, watched: JSON `{"workers": [{"address": "host:port", "rank": 0, "labels": {}}]}` or one
    `host:port` a line.
    """


class WorkerSettings(Part):
    """What workers report about themselves."""

    title = "Workers"

    scrape_seconds: Seconds = Field(default=0.5, ge=0.05, le=60)
    """Between two scrapes of a worker's `/metrics`, jittered."""
    scrape_timeout_seconds: Seconds = Field(default=1.0, gt=0, le=60)
    """How long one scrape may take."""
    scrape_parallel: int = Field(default=64, ge=1, le=1024)
    """Most scrapes at one time."""
    scrape_max_bytes: int = Field(default=8 * 1024 * 1024, ge=4096)
    """Largest `/metrics` page that is read."""
    report_stale_seconds: Seconds = Field(default=5.0, gt=0, le=3600)
    """A report older than this no longer counts: the worker is priced by bookings alone."""
    metrics_scheme: Literal["http", "https"] = "http"
    """Scheme of the workers' `/metrics`."""
    metrics_path: str = "/metrics"
    """Path of the workers' `/metrics`."""
    models_seconds: Seconds = Field(default=30.0, ge=0, le=86_400)
    """
    Between two looks at a worker's `/v1/models`, where engines name the LoRA adapters they hold. 0: never asked.
    """
    kv_cache_usage_percentage_metric: str = ""
    """Name of the engine's KV-cache usage, a fraction 0..1. Empty: vLLM's names, the new one first."""
