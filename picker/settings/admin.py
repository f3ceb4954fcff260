"""The pages of a replica, the port for its peers, its start and stop."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)

from picker.settings.part import Part, Seconds, Words, whole_names


class AdminSettings(Part):
    """Metrics, health and status."""

    title = "Admin"

    admin_host: str = "0.0.0.0"  # noqa: S104 - metrics and health are for the cluster, the rest for loopback or a token
    """Address that the admin port listens on."""
    metrics_port: int = Field(default=9090, ge=0, le=65535)
    """Port of metrics, health and status."""
    admin_token: SecretStr = SecretStr("")
    """Bearer token for the paths other than metrics and health. Empty: they answer to loopback only."""
    metrics_protection: Literal["open", "kubernetes"] = "open"
    """
    Who may read `/metrics`: `open`, everybody; `kubernetes`, loopback and bearers of a token whose right to `get` that
    path the API server confirms (TokenReview, SubjectAccessReview). The other pages then open to such a token as well.
    """
    metrics_review_seconds: Seconds = Field(default=60.0, ge=1, le=3600)
    """
    Longest time that the API server's answer on a token is believed while the server is away. Past half of it the
    server is asked again.
    """
    why_keep: int = Field(default=5_000, ge=0)
    """How many decisions are kept for `/why/ID`."""


class PeersSettings(Part):
    """The port on which replicas answer one another."""

    title = "Peers"

    peers_host: str = ""
    """Address that the peers port listens on. Empty: every address of the pod, IPv4 and IPv6."""
    peers_port: int = Field(default=9092, ge=0, le=65535)
    """
    Port on which other replicas read status and `/why`; also the port at which they are asked, where their own source
    names none.
    """
    peers_secret_file: Path | None = None
    """
    File of the secret that replicas share, looked at again while running: one a line, of which the first is shown to
    others and each is accepted. Without it or mutual TLS the port stays closed, except on loopback.
    """
    peers_tls_ca_file: Path | None = None
    """
    PEM file of the authorities that sign replicas' certificates. With it, and a certificate, replicas talk over mutual
    TLS; with a secret as well, both must be right.
    """
    peers_tls_cert_file: Path | None = None
    """PEM file of the certificate chain that this replica shows the others, as server and as client."""
    peers_tls_key_file: Path | None = Field(default=None, validate_default=True)
    """PEM file of its private key."""
    peers_tls_names: Words = ()
    """
    Names of which a replica's certificate must carry one: SPIFFE ids (`spiffe://...`) or DNS names. Empty: any
    certificate of `PICKER_PEERS_TLS_CA_FILE`.
    """
    peers_timeout_seconds: Seconds = Field(default=1.0, gt=0, le=30)
    """How long all peers together may take to answer a question; who did not is named."""

    @field_validator("peers_tls_key_file")
    @classmethod
    def _all_files_or_none(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        names = ("peers_tls_ca_file", "peers_tls_cert_file")
        if (
            all(name in info.data for name in names)
            and len({value is None, *(info.data[n] is None for n in names)}) > 1
        ):
            raise ValueError(
                "mutual TLS needs all of PICKER_PEERS_TLS_CA_FILE, PICKER_PEERS_TLS_CERT_FILE and "
                "PICKER_PEERS_TLS_KEY_FILE, or none of them"
            )
        return value

    @field_validator("peers_tls_names")
    @classmethod
    def _names_with_authorities(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and "peers_tls_ca_file" in info.data and info.data["peers_tls_ca_file"] is None:
            raise ValueError(
                "anybody could claim a name that no authority vouches for; set PICKER_PEERS_TLS_CA_FILE"
            )
        return whole_names(value)


class LifeSettings(Part):
    """Start and stop."""

    title = "Life"

    warmup_seconds: Seconds = Field(default=30.0, ge=0, le=3600)
    """
    Longest wait for workers, plane and index before the replica is ready all the same, degraded and saying
    so.
    """
    drain_min_seconds: Seconds = Field(default=15.0, ge=0, le=3600)
    """After SIGTERM new streams are served for at least this long: DNS TTL plus the gateway's refresh."""
    drain_max_seconds: Seconds = Field(default=130.0, ge=0, le=86_400)
    """After SIGTERM open streams are waited for at most this long, then closed with OK."""

    @field_validator("drain_max_seconds")
    @classmethod
    def _maximum_after_minimum(cls, value: float, info: ValidationInfo) -> float:
        least = info.data.get("drain_min_seconds", 0.0)
        if value < least:
            raise ValueError(f"must be at least PICKER_DRAIN_MIN_SECONDS ({least:g})")
        return value

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Log level at the start; `POST /loglevel` changes it while running."""
    log_format: Literal["json", "text"] = "json"
    """Log lines as JSON or as text."""
