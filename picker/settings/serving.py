"""The pool, and the gateway's side."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from picker.settings.part import Part, Seconds, Words, also, whole_names


class PoolSettings(Part):
    """Which pool this replica serves, and who it is."""

    title = "Pool and replica"

    pool_name: str = "default"
    """Name of the InferencePool. Every key, subject and metric is scoped by namespace and name."""
    pool_namespace: str = Field(
        default="default", validation_alias=also("POOL_NAMESPACE", "NAMESPACE", "POD_NAMESPACE")
    )
    """Namespace of the InferencePool."""
    replica_name: str = Field(
        default="", max_length=253, validation_alias=also("REPLICA_NAME", "POD_NAME", "HOSTNAME")
    )
    """
    Name of this replica, the pod's name on Kubernetes. Empty: a random one. Each start adds a fresh
    incarnation.
    """
    replica_address: str = Field(default="", validation_alias=also("REPLICA_ADDRESS", "POD_IP"))
    """
    Address under which peers see this replica, to know itself among the addresses of the headless Service.
    """

    @property
    def pool(self) -> str:
        """``namespace/name``, the pool's full name."""
        return f"{self.pool_namespace}/{self.pool_name}"


class ServingSettings(Part):
    """The gateway's side: ext_proc, access log, health, TLS."""

    title = "Serving"

    grpc_host: str = "0.0.0.0"  # noqa: S104 - a pod serves its gateway on the pod's own address
    """Address that the ext_proc, access log and health ports listen on."""
    grpc_port: int = Field(default=9002, ge=0, le=65535)
    """Port of ext_proc, the access log service and gRPC health."""
    grpc_health_port: int = Field(default=9003, ge=0, le=65535)
    """Port of gRPC health in plain text, for probes."""
    extproc_mode: Literal["", "none", "buffered", "buffered_partial", "streamed", "full_duplex_streamed"] = ""
    """
    Request body mode to assume. Empty: what the gateway names in its first message, else told from the
    messages.
    """
    stream_hold: Literal["", "headers", "response"] = ""
    """
    Until when an ext_proc stream is held: `headers` closes it after response headers, so that a replica's death cuts
    no response and the access log tells the end; `response` holds it to the end. Empty: `headers` where the response
    body mode is NONE or STREAMED and some replica receives an access log that names our bookings, else `response`.
    """
    max_body_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    """Largest request body that is read; a larger one is answered with 413."""
    max_buffered_bytes: int = Field(default=1024 * 1024 * 1024, ge=1024 * 1024)
    """
    Most bytes of request bodies held at one time over all streams; past it requests are answered with 429. The last
    eighth is kept for bodies of at most 64 KiB.
    """
    max_streams: int = Field(default=20_000, ge=1)
    """Most ext_proc streams open at one time; past it a request is answered with 429."""
    body_timeout_seconds: Seconds = Field(default=60.0, gt=0)
    """How long a request may take to send its whole body before it is answered with 408."""
    stream_timeout_seconds: Seconds = Field(default=3600.0, gt=0)
    """How long a held stream may live without any message before it is closed with OK."""
    tls: Literal["off", "self-signed", "files"] = "off"
    """
    TLS of the ext_proc port. `self-signed` makes a certificate at the start (gateways that do not verify);
    `files` reads it.
    """
    tls_cert_file: Path | None = None
    """PEM file of the certificate chain, with `PICKER_TLS=files`."""
    tls_key_file: Path | None = None
    """PEM file of the private key, with `PICKER_TLS=files`."""
    tls_client_ca_file: Path | None = None
    """
    PEM file of the authorities that sign gateways' certificates: a client without one of theirs is refused. Unset:
    clients show none.
    """
    tls_client_names: Words = ()
    """
    Names of which a gateway's certificate must carry one: SPIFFE ids (`spiffe://...`) or DNS names. Empty: any
    certificate of `PICKER_TLS_CLIENT_CA_FILE`.
    """

    @field_validator("tls_client_ca_file")
    @classmethod
    def _authorities_with_tls(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("tls", "off") == "off":
            raise ValueError(
                "clients show certificates over TLS only; set PICKER_TLS to files or self-signed"
            )
        return value

    @field_validator("tls_client_names")
    @classmethod
    def _names_with_authorities(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and "tls_client_ca_file" in info.data and info.data["tls_client_ca_file"] is None:
            raise ValueError(
                "anybody could claim a name that no authority vouches for; set PICKER_TLS_CLIENT_CA_FILE"
            )
        return whole_names(value)

    tls_reload_seconds: Seconds = Field(default=10.0, ge=0, le=86_400)
    """Between two looks at the certificate files, so that renewed ones serve new connections. 0: read once."""
    keepalive_seconds: Seconds = Field(default=10.0, ge=1, le=7200)
    """A connection silent for so long is asked whether it still lives."""
    keepalive_timeout_seconds: Seconds = Field(default=10.0, ge=1, le=7200)
    """How long that answer may take before the connection is closed and its streams are over."""
    max_connection_streams: int = Field(default=10_000, ge=1)
    """Most streams of one connection at one time; the gateway opens another connection or waits."""
    max_connections: int = Field(default=10_000, ge=1)
    """Most connections to each of the gRPC ports at one time; further ones are closed at once."""
    max_message_bytes: int = Field(default=0, ge=0)
    """Largest gRPC message that is read. 0: what one body of `PICKER_MAX_BODY_BYTES` needs."""
    transport: Literal["native", "grpcio"] = "native"
    """
    What carries the gateway's streams: `native`, this picker's own HTTP/2 server, or `grpcio`, which costs several
    times the processor time.
    """
    mode_override: bool = False
    """
    Ask the gateway, request by request, not to show the response's body where nobody here reads it, and to show it
    where somebody does. Needs `allow_mode_override` in the gateway's filter.
    """
    conformance: bool = False
    """
    Obey the headers of the Gateway API Inference Extension's conformance suite: clients choose among the pool's
    endpoints and are told which one served. For tests of gateways, never for a pool in use.
    """
    unknown_path: Literal["load", "refuse"] = "load"
    """A request on a path we do not know: `load` routes it by load alone, `refuse` answers 400."""
