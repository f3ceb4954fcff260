"""KV events: the side of the replicas and the side of the bridge."""

from __future__ import annotations

from pathlib import Path

from pydantic import (
    Field,
    SecretStr,
)

from picker.settings.part import Part, Seconds, Words, also


class EventSettings(Part):
    """KV events: from NATS into the index."""

    title = "KV events"

    nats_url: SecretStr = Field(default=SecretStr(""), validation_alias=also("NATS_URL", "NATS_SERVER"))
    """`nats://host:port` of the server that carries KV events. Empty: no events, prefixes are not known."""
    nats_credentials_file: Path | None = None
    """NATS credentials file (`.creds`), read at each connection."""
    nats_nkey_file: Path | None = None
    """File with an NKEY seed, read at each connection. Use this or a credentials file, not both."""
    nats_ca_file: Path | None = None
    """CA certificates (PEM) that the NATS server's certificate is checked against. Empty: the system's."""
    nats_cert_file: Path | None = None
    """Client certificate (PEM) for a NATS server that asks for one."""
    nats_key_file: Path | None = None
    """Its private key (PEM)."""
    events_queue: int = Field(default=65_536, ge=64)
    """
    Most event messages waiting to be applied; past it the oldest are dropped, counted, and the workers
    concerned recovered.
    """
    recovery_parallel: int = Field(default=8, ge=1, le=256)
    """How many workers are recovered at one time."""
    recovery_timeout_seconds: Seconds = Field(default=2.0, gt=0)
    """How long one answer of a bridge may take."""
    events_silent_seconds: Seconds = Field(default=60.0, gt=0)
    """
    A worker that was sent requests for so long without one event is called silent: in the log, in the status, counted.
    """
    predicted_seconds: Seconds = Field(default=5.0, ge=0)
    """
    For how long the worker just picked is believed to hold the prompt before its own events say so. 0: never.
    """
    approximate: bool = False
    """
    Learn prefixes from picks for workers that no KV events tell of; replicas share what they learn over NATS.
    """
    approximate_ttl_seconds: Seconds = Field(default=120.0, gt=0)
    """How long a learned prefix is believed after its last use."""
    approximate_blocks: int = Field(default=65_536, ge=64)
    """
    Most learned blocks per worker, about as many as all its tiers together hold; past it those used longest ago go.
    """
    dynamo_subject: str = ""
    """
    `namespace.NAME.component.NAME` of Dynamo workers that publish their KV events on this NATS server. Empty: none.
    """
    dynamo_workers: Words = ()
    """Which of their instance ids is which worker: `ID=host:port`, separated by commas."""


class BridgeSettings(Part):
    """The bridge: one engine's events on NATS."""

    title = "Bridge"

    bridge_worker: str = ""
    """`host:port` of the engine as the gateway reaches it: the worker's name in the pool."""
    bridge_events: str = "tcp://127.0.0.1:5557"
    """ZMQ endpoint of the engine's KV events (PUB)."""
    bridge_replay: str = ""
    """
    ZMQ endpoint of the engine's replay (ROUTER). Empty: none, a lost event makes the worker's state partial.
    """
    bridge_rank: int = Field(default=0, ge=0)
    """The engine's data-parallel rank, where its events do not name one."""
    bridge_admin_port: int = Field(default=0, ge=0, le=65535)
    """Port of the bridge's metrics and health. 0: none."""
    bridge_metrics: str = ""
    """
    URL of the engine's `/metrics`, polled to see an engine put to sleep (`vllm:engine_sleep_state`). Empty: not polled.
    """
    bridge_metrics_seconds: Seconds = Field(default=2.0, ge=0.1, le=600)
    """Between two polls of that page."""
    bridge_repeats: bool = False
    """
    The engine announces blocks again that it holds already (vLLM's `kv_cache_report_mode` full). Copies are then not
    counted: a block goes with its first removal.
    """
    bridge_buffer: int = Field(default=4096, ge=16)
    """How many published events are kept for replicas that missed some; beyond them a snapshot is sent."""
    bridge_snapshot_bytes: int = Field(default=524_288, ge=4096)
    """Largest piece of a snapshot in one NATS message."""
