"""The state plane."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import (
    AliasChoices,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)

from picker.settings.part import Part, Seconds, also


class PlaneSettings(Part):
    """The state plane: bookings shared by all replicas."""

    title = "State plane"

    plane_url: SecretStr = SecretStr("memory://")
    """
    Where bookings are shared: `redis://[user@]host:port[/database]`, `rediss://` (TLS),
    `redis+sentinel://host:port,host:port/primary-name`, `nats://host:port`, `tls://host:port` (NATS over TLS) or
    `memory://` (one replica).
    """
    plane_password_file: Path | None = None
    """File that holds the plane's password, read at each connection."""
    plane_ca_file: Path | None = None
    """PEM file of the authorities that may sign the plane's certificate. Unset: the system's."""
    plane_certificate_file: Path | None = None
    """PEM file of the certificate chain that this replica shows the plane, where the plane asks for one."""
    plane_key_file: Path | None = None
    """PEM file of the private key of `PICKER_PLANE_CERTIFICATE_FILE`."""
    sync: Literal["", "isolated", "eventual", "atomic"] = ""
    """
    How replicas share load: `isolated` sees own bookings only, `eventual` chooses on the shared view and books after,
    `atomic` lets the plane choose among the best. Empty: `eventual`, or `isolated` on the memory plane.
    """
    replica_sync: bool | None = Field(default=None, validation_alias=AliasChoices("DYN_ROUTER_REPLICA_SYNC"))
    """Dynamo's switch: true is `PICKER_SYNC=eventual`, false `isolated`. `PICKER_SYNC` wins."""
    booking_ttl_seconds: Seconds = Field(
        default=3.0,
        ge=0.5,
        le=3600,
        validation_alias=also("BOOKING_TTL_SECONDS", "DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS"),
    )
    """
    A replica's lease: silent for so long, its bookings turn draining. A living replica's bookings never expire,
    however long they run. Lower: a short stall drains live bookings. Higher: a dead replica's load is believed longer.
    """
    heartbeat_seconds: Seconds = Field(default=1.0, ge=0.1, le=60)
    """Between two heartbeats of a replica; one heartbeat renews all its bookings."""

    @field_validator("heartbeat_seconds")
    @classmethod
    def _beats_within_the_lease(cls, value: float, info: ValidationInfo) -> float:
        lease = info.data.get("booking_ttl_seconds", math.inf)
        if value * 2 > lease:
            raise ValueError(
                f"must be at most half of PICKER_BOOKING_TTL_SECONDS ({lease:g}), "
                "or one late heartbeat drains live bookings"
            )
        return value

    drain_seconds: Seconds = Field(default=30.0, ge=0, le=3600)
    """How long a draining booking counts where the worker reports its load and no evidence ends it sooner."""
    drain_blind_seconds: Seconds = Field(default=10.0, ge=0, le=3600)
    """The same where the worker does not report."""
    superseded_drain_seconds: Seconds | None = Field(default=None, ge=0, le=3600)
    """
    How long an attempt superseded by a retry counts. Unset: the drain deadline. 0 suits gateways that fail
    closed.
    """
    tombstone_seconds: Seconds = Field(default=60.0, ge=1, le=3600)
    """How long the plane remembers an ended booking, so that a late call does not bring it back."""
    plane_timeout_seconds: Seconds = Field(default=0.25, gt=0, le=10)
    """
    Deadline of one call to the plane, beside the pick path. One that waits behind others has it twice: until it is
    sent, and for its answer. It has to be longer than the usual round trip to the plane, or the plane counts as away.
    """
    plane_connect_seconds: Seconds = Field(default=5.0, gt=0, le=60)
    """
    Deadline of a connection to the plane with all that stands before its first call (name, TLS, password, sentinels,
    scripts), which goes on in the background; never less than `PICKER_PLANE_TIMEOUT_SECONDS`.
    """
    atomic_budget_seconds: Seconds = Field(default=0.02, gt=0, le=1)
    """Deadline of the atomic call; past it the pick is made on the view and counted as degraded."""
    atomic_candidates: int = Field(default=8, ge=1, le=64)
    """
    How many of the cheapest workers the plane chooses among in mode `atomic`. More: dearer calls, better balance.
    """
    atomic_parallel: int = Field(default=64, ge=1, le=4096)
    """Most atomic calls in flight; past it the pick is made on the view and counted as degraded."""
    plane_outbox: int = Field(default=10_000, ge=16)
    """
    Most bookings whose newest state waits for a plane that is away; past it the oldest are dropped and
    counted.
    """
