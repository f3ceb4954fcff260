"""
Settings: what an operator may turn, read from the environment once, frozen afterwards.

One model per part of the picker; a part is handed its own model and nothing else. Every variable starts with
``PICKER_``; a few names of the field are accepted as aliases. Durations are plain seconds. The text under each
field is the documentation: the README's table and the chart's schema are generated from it.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX = "PICKER_"

Seconds = float
Words = Annotated[tuple[str, ...], NoDecode]
"""Several words in one variable, separated by commas."""


class SettingsError(Exception):
    """The environment cannot be used. ``lines`` holds one sentence per fault, each naming its variable."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


API_OBJECTS = ("inferenceobjectives", "inferencemodelrewrites", "inferencepoolimports")


class Part(BaseSettings):
    """The habits that all parts share."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        use_attribute_docstrings=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    title: ClassVar[str] = ""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what is given by name first, then the environment; files are never searched for."""
        return init_settings, env_settings

    @field_validator("*", mode="before")
    @classmethod
    def _split_words(cls, value: Any, info: Any) -> Any:
        field = cls.model_fields[info.field_name]
        if isinstance(value, str) and field.annotation == tuple[str, ...]:
            return tuple(word.strip() for word in value.split(",") if word.strip())
        return value


def _also(name: str, *others: str) -> AliasChoices:
    return AliasChoices(PREFIX + name, *others)


class PoolSettings(Part):
    """Which pool this replica serves, and who it is."""

    title = "Pool and replica"

    pool_name: str = "default"
    """Name of the InferencePool. Every key, subject and metric is scoped by namespace and name."""
    pool_namespace: str = Field(
        default="default", validation_alias=_also("POOL_NAMESPACE", "NAMESPACE", "POD_NAMESPACE")
    )
    """Namespace of the InferencePool."""
    replica_name: str = Field(
        default="", max_length=253, validation_alias=_also("REPLICA_NAME", "POD_NAME", "HOSTNAME")
    )
    """
    Name of this replica, the pod's name on Kubernetes. Empty: a random one. Each start adds a fresh
    incarnation.
    """
    replica_address: str = Field(default="", validation_alias=_also("REPLICA_ADDRESS", "POD_IP"))
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
        for name in value:
            if "*" in name or ("://" in name and not name.startswith("spiffe://")):
                raise ValueError(f"{name!r} is neither a SPIFFE id (spiffe://...) nor a whole DNS name")
        return value

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
    transport: Literal["grpcio", "native"] = "grpcio"
    """
    What carries the gateway's streams: `grpcio`, or `native`, this picker's own HTTP/2 server, which costs a fraction
    of the processor time.
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


class RequestSettings(Part):
    """From body to token ids."""

    title = "Requests"

    tokenizers: str = ""
    """
    Where each model's token ids come from: `MODEL=DIR` pairs separated by commas. DIR holds `tokenizer.json`, or
    `*.tiktoken` with a `tiktoken.json` (`pattern`, `special_tokens`, `normalization`), and the chat template in
    `chat_template.jinja` or `tokenizer_config.json`. `MODEL=http://host:port` asks that engine's own `/tokenize`
    within the budget. `*=` serves every other model. Without one a model is routed by load alone.
    """
    tokenize_budget_seconds: Seconds = Field(default=0.1, gt=0, le=10)
    """
    Longest time that tokenising may take before a request is routed by load alone. Gateways' message timeouts
    start at 0.2.
    """
    tokenize_threads: int = Field(default=2, ge=1, le=64)
    """
    Threads that tokenise, beside the event loop. Long prompts leave one of several free, so two or more keep short
    prompts quick.
    """
    tokenize_queue: int = Field(default=256, ge=1)
    """Most prompts waiting for a tokenising thread; past it a request is routed by load alone."""
    loras: Words = ()
    """
    Names of LoRA adapters: a request whose model is one of them is an adapter of the base model named in
    `PICKER_BASE_MODEL`.
    """
    base_model: str = ""
    """The base model of the adapters in `PICKER_LORAS`."""
    model_rewrite_file: Path | None = None
    """
    File of model rewrites, watched: InferenceModelRewrite objects as YAML or JSON, several as a stream or a list.
    Unset: models go on as clients name them.
    """
    read_usage: bool = True
    """Read the token usage that engines tell in responses, where the gateway shows their bodies."""
    request_key_headers: Words = ("x-request-id",)
    """
    Headers that name a logical request over its retries; the first one present counts, together with the
    body's digest.
    """


class PriceSettings(Part):
    """What a worker costs a request: the parameters of the price."""

    title = "Price"

    block_size: int = Field(
        default=16, ge=1, le=1024, validation_alias=_also("BLOCK_SIZE", "DYN_KV_CACHE_BLOCK_SIZE")
    )
    """
    Tokens per block, for the whole pool. Smaller engine blocks are joined; a size that does not divide it is
    refused.
    """
    overlap_credit: float = Field(
        default=1.0,
        ge=0,
        le=1,
        validation_alias=_also("OVERLAP_CREDIT", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"),
    )
    """How much of a cached prefix is taken off the prefill: 1 all of it, 0 ignores caches."""
    prefill_scale: float = Field(
        default=1.0, ge=0, validation_alias=_also("PREFILL_SCALE", "DYN_ROUTER_PREFILL_LOAD_SCALE")
    )
    """Weight of prefill blocks against decode blocks."""
    request_weight: float = Field(
        default=0.0,
        ge=0,
        validation_alias=_also("REQUEST_WEIGHT", "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT"),
    )
    """Price of each request a worker already carries, in blocks."""
    host_tier_weight: float = Field(
        default=0.75,
        ge=0,
        le=1,
        validation_alias=_also("HOST_TIER_WEIGHT", "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT"),
    )
    """Worth of a block held in host memory, against one on the device."""
    disk_tier_weight: float = Field(
        default=0.25,
        ge=0,
        le=1,
        validation_alias=_also("DISK_TIER_WEIGHT", "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT"),
    )
    """Worth of a block held on disk, against one on the device."""
    temperature: float = Field(
        default=0.0, ge=0, validation_alias=_also("TEMPERATURE", "DYN_ROUTER_TEMPERATURE")
    )
    """0 takes the cheapest worker; above it workers are drawn by softmax of their prices."""
    fallbacks: int = Field(default=0, ge=0, le=8)
    """
    How many further endpoints are named behind the chosen one, for gateways that walk the list on a retry.
    """
    lora_narrow: bool = True
    """
    Send a request for a LoRA adapter only to workers that hold it, as labels and lists of models say, as long as one of
    them may be chosen. A worker that does not say may hold it, and pays `PICKER_LORA_LOAD_BLOCKS`.
    """
    lora_load_blocks: float = Field(default=64.0, ge=0, le=1_048_576)
    """
    Price of bringing a LoRA adapter to work on a worker, in blocks: a worker that runs it already takes so much more
    load before others get its requests.
    """
    criteria: Words = ()
    """
    Criteria of your own, in the order they are asked: names of entry points in the group `picker.criteria`, or
    `labels`.
    """
    label_affinity: Words = ()
    """
    With the criterion `labels`: `HEADER=LABEL` pairs. A request that carries HEADER goes to workers whose LABEL has
    its value, or, with `HEADER=LABEL:BLOCKS`, pays BLOCKS more on others.
    """
    max_worker_requests: int = Field(default=0, ge=0)
    """
    Most requests booked on one worker; when every worker is there, requests are answered with 429. 0: no
    limit.
    """


class EventSettings(Part):
    """KV events: from NATS into the index."""

    title = "KV events"

    nats_url: SecretStr = Field(default=SecretStr(""), validation_alias=_also("NATS_URL", "NATS_SERVER"))
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
        validation_alias=_also("BOOKING_TTL_SECONDS", "DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS"),
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
    """Deadline of one call to the plane, beside the pick path."""
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
    peer_service: str = Field(default="", validation_alias=_also("PEER_SERVICE", "DYN_EPP_PEER_SERVICE"))
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


class AdminSettings(Part):
    """Metrics, health and status."""

    title = "Admin"

    admin_host: str = "0.0.0.0"  # noqa: S104 - metrics and health are for the cluster, the rest for loopback or a token
    """Address that the admin port listens on."""
    metrics_port: int = Field(default=9090, ge=0, le=65535)
    """Port of metrics, health and status."""
    admin_token: SecretStr = SecretStr("")
    """Bearer token for the paths other than metrics and health. Empty: they answer to loopback only."""
    why_keep: int = Field(default=5_000, ge=0)
    """How many decisions are kept for `/why/ID`."""


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


PARTS: tuple[type[Part], ...] = (
    PoolSettings, ServingSettings, RequestSettings, PriceSettings, EventSettings, BridgeSettings, PlaneSettings,
    DiscoverySettings, WorkerSettings, AdminSettings, LifeSettings,
)  # fmt: skip


class Settings(BaseModel):
    """Everything one replica is told, a part each."""

    model_config = ConfigDict(frozen=True)

    pool: PoolSettings
    serving: ServingSettings
    requests: RequestSettings
    price: PriceSettings
    events: EventSettings
    bridge: BridgeSettings
    plane: PlaneSettings
    discovery: DiscoverySettings
    workers: WorkerSettings
    admin: AdminSettings
    life: LifeSettings

    @cached_property
    def sync(self) -> Literal["isolated", "eventual", "atomic"]:
        """The sync mode in force, with the default of the plane filled in."""
        if self.plane.sync:
            return self.plane.sync
        if self.plane.replica_sync is not None:
            return "eventual" if self.plane.replica_sync else "isolated"
        memory = self.plane.plane_url.get_secret_value().startswith("memory:")
        return "isolated" if memory else "eventual"


def names_of(part: type[Part], field: str, info: FieldInfo) -> tuple[str, ...]:
    """The environment names of a setting, ours first."""
    if isinstance(info.validation_alias, AliasChoices):
        return tuple(str(choice) for choice in info.validation_alias.choices)
    return (str(part.model_config.get("env_prefix", "")) + field.upper(),)


def known_names() -> Iterator[str]:
    """Every ``PICKER_*`` name that means something."""
    for part in PARTS:
        for field, info in part.model_fields.items():
            yield from (name for name in names_of(part, field, info) if name.startswith(PREFIX))


def _unknown(environment: Mapping[str, str]) -> Iterator[str]:
    known = list(known_names())
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`picker settings` lists the known names."
        yield f"{name}: no such setting; {hint}"


def _faults(part: type[Part], error: ValidationError, environment: Mapping[str, str]) -> Iterator[str]:
    by_alias = {
        name: names for field, info in part.model_fields.items() for names in [names_of(part, field, info)]
        for name in (field, *names)
    }  # fmt: skip
    for fault in error.errors(include_url=False, include_input=False):
        names = by_alias.get(str(fault["loc"][0]), (str(fault["loc"][0]),)) if fault["loc"] else ("settings",)
        name = next((name for name in names if name in environment), names[0])
        said = fault["msg"].removeprefix("Value error, ")
        yield f"{name}: {said[0].lower()}{said[1:]}"


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """
    Read every part from the environment; ``given`` overrides by field name, as flags do.

    Raises:
        SettingsError: with one line per fault: the variable, what is wrong with its value, what is allowed.

    """
    environment = os.environ if environment is None else environment
    lines = list(_unknown(environment))
    parts: dict[str, Part] = {}
    for name, part in zip(Settings.model_fields, PARTS, strict=True):
        mine = {key: value for key, value in given.items() if key in part.model_fields}
        try:
            parts[name] = part(**mine)
        except ValidationError as error:
            lines.extend(_faults(part, error, environment))
    if lines:
        raise SettingsError(lines)
    return Settings(**parts)  # type: ignore[arg-type]
