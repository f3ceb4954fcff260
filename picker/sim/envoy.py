"""Envoy's configuration for a pool behind pickers: pure data, ready for ``json.dumps``.

What a gateway must be told is part of the product. A replica that dies costs no request but the picks it had
in hand only where the ext_proc cluster has an active health check, outlier detection **and** a gRPC retry
policy, the latter on the gRPC service itself: under ``envoy_grpc`` Envoy ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from picker.serving.reading import BALANCER_NAMESPACE, SERVED_KEY
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER

BodyMode = Literal["NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"]
HeaderMode = Literal["SEND", "SKIP"]
Balance = Literal["ROUND_ROBIN", "LEAST_REQUEST"]
HealthCheck = Literal["grpc", "tcp"]
Config = dict[str, Any]

EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
BUFFER_LIMIT = 32 * 1024 * 1024
PICKERS, PICKER_LOGS, POOL, POOL_LIST, WORKERS = "pickers", "picker_logs", "pool", "pool_list", "workers"
_TYPES = "type.googleapis.com/envoy.extensions."
_MANY = 100_000
_FOREVER = "0s"
_RESPONSE_ATTRIBUTES = ["upstream.address", "upstream.request_attempt_count", "response.flags"]


@dataclass(frozen=True, slots=True)
class Listener:
    """One port of the gateway and how it talks to the picker."""

    name: str
    port: int
    request_body_mode: BodyMode = "FULL_DUPLEX_STREAMED"
    response_body_mode: BodyMode = "NONE"
    response_headers: HeaderMode = "SEND"
    response_trailers: HeaderMode = "SEND"
    """With response body NONE, SEND holds the stream to the end of the response, SKIP to its headers."""
    ext_proc: bool = True
    """False: no picker at all, requests go round robin over the workers."""
    retries: int = 0
    """Tries after the first one on resets, failed connections and 5xx, by the gateway itself."""
    follows_list: bool = False
    """Whether the gateway walks the destination list, one endpoint further with each of ``retries``, and says in its
    metadata which endpoint served. It dials its own ``workers`` only; without it it takes a single endpoint, any."""
    attributes: bool = True
    """Whether response attributes tell the picker which endpoint served."""


@dataclass(frozen=True, slots=True)
class PickerService:
    """How the gateway reaches the pickers; the defaults are what a replica's death needs."""

    addresses: Sequence[str]
    """``host:port`` of each replica's ext_proc port."""
    tls: bool = False
    """Speak TLS with ALPN h2, without verifying the certificate."""
    balance: Balance = "ROUND_ROBIN"
    health_check: HealthCheck = "grpc"
    failure_mode_allow: bool = False
    message_timeout: float = 5.0
    """Seconds one answer of the picker may take."""
    access_log: bool = True
    log_buffer_bytes: int = 0
    """How many bytes of entries wait for the flush every 50 ms; 0: each goes at once.

    An entry that waits is a booking that outlives its request: with 16384 the same prompt sent again and again found
    the worker that holds it busy with its predecessor, and alternated between two workers; with 0 it stayed.
    """


def envoy_config(
    listeners: Sequence[Listener],
    picker_addresses: Sequence[str],
    admin_port: int,
    *,
    workers: Sequence[str] = (),
    tls: bool = False,
    balance: Balance = "ROUND_ROBIN",
    health_check: HealthCheck = "grpc",
    failure_mode_allow: bool = False,
    message_timeout: float = 5.0,
    access_log: bool = True,
    log_buffer_bytes: int = 0,
    buffer_limit: int = BUFFER_LIMIT,
    host: str = "127.0.0.1",
) -> Config:
    """The bootstrap configuration of one Envoy.

    ``picker_addresses`` are the replicas' ext_proc ports (which also take the access log); ``workers`` are
    needed by listeners without ext_proc, and by those that follow the list; ``message_timeout`` is in seconds,
    ``buffer_limit`` in bytes: a BUFFERED body above it is answered by Envoy with 413.

    Raises ValueError for a combination that Envoy would refuse or that could not serve.
    """
    _check(listeners, picker_addresses, workers)
    service = PickerService(
        addresses=picker_addresses,
        tls=tls,
        balance=balance,
        health_check=health_check,
        failure_mode_allow=failure_mode_allow,
        message_timeout=message_timeout,
        access_log=access_log,
        log_buffer_bytes=log_buffer_bytes,
    )
    clusters: list[Config] = []
    if any(listener.ext_proc for listener in listeners):
        clusters += [_picker_cluster(PICKERS, service, buffer_limit), _pool_cluster(buffer_limit)]
        if access_log:
            clusters.append(_picker_cluster(PICKER_LOGS, service, buffer_limit))
    if any(listener.follows_list for listener in listeners):
        clusters.append(_list_cluster(workers, buffer_limit))
    if any(not listener.ext_proc for listener in listeners):
        clusters.append(_workers_cluster(workers, buffer_limit))
    return {
        "admin": {"address": _socket(f"{host}:{admin_port}")},
        "static_resources": {
            "listeners": [_listener(each, service, host, buffer_limit) for each in listeners],
            "clusters": clusters,
        },
    }


def _check(listeners: Sequence[Listener], picker_addresses: Sequence[str], workers: Sequence[str]) -> None:
    for listener in listeners:
        if listener.ext_proc and not picker_addresses:
            raise ValueError(f"listener {listener.name!r} asks a picker, but no picker address is given")
        if not listener.ext_proc and not workers:
            raise ValueError(f"listener {listener.name!r} goes round robin, but no worker is given")
        if listener.follows_list and not workers:
            raise ValueError(f"listener {listener.name!r} walks the destination list, but no worker is given")
        if listener.response_body_mode == "FULL_DUPLEX_STREAMED" and listener.response_trailers != "SEND":
            raise ValueError(
                f"listener {listener.name!r}: response body FULL_DUPLEX_STREAMED needs trailers SEND"
            )


def _seconds(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _socket(address: str) -> Config:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def _grpc_service(cluster: str, *, retry: bool = False) -> Config:
    service: Config = {"envoy_grpc": {"cluster_name": cluster}}
    if retry:
        service["retry_policy"] = {
            "retry_on": "connect-failure,refused-stream,reset,unavailable",
            "num_retries": 2,
            "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.02s"},
        }
    return service


def _processing_mode(listener: Listener) -> Config:
    duplex = listener.request_body_mode == "FULL_DUPLEX_STREAMED"
    return {
        "request_header_mode": "SEND",
        "request_body_mode": listener.request_body_mode,
        "request_trailer_mode": "SEND" if duplex else "SKIP",
        "response_header_mode": listener.response_headers,
        "response_body_mode": listener.response_body_mode,
        "response_trailer_mode": listener.response_trailers,
    }


def _ext_proc(listener: Listener, service: PickerService) -> Config:
    return {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": _TYPES + "filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": _grpc_service(PICKERS, retry=True),
            "failure_mode_allow": service.failure_mode_allow,
            "message_timeout": _seconds(service.message_timeout),
            "processing_mode": _processing_mode(listener),
            "request_attributes": ["request.id"],
            "response_attributes": _RESPONSE_ATTRIBUTES if listener.attributes else [],
            "metadata_options": {
                "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
                "receiving_namespaces": {"untyped": ["envoy.lb"]},
            },
        },
    }


def _access_log(listener: Listener, service: PickerService) -> Config:
    return {
        "name": "envoy.access_loggers.http_grpc",
        "typed_config": {
            "@type": _TYPES + "access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
            "common_config": {
                "log_name": listener.name,
                "transport_api_version": "V3",
                "buffer_flush_interval": "0.05s",
                "buffer_size_bytes": service.log_buffer_bytes,
                "grpc_service": _grpc_service(PICKER_LOGS),
            },
            "additional_request_headers_to_log": [BOOKING_HEADER],
        },
    }


def _forget_forged() -> Config:
    mutations = [{"remove": DESTINATION_HEADER}, {"remove": BOOKING_HEADER}]
    kind = "http.early_header_mutation.header_mutation"
    return {
        "name": f"envoy.{kind}",
        "typed_config": {"@type": f"{_TYPES}{kind}.v3.HeaderMutation", "mutations": mutations},
    }


def _route(listener: Listener) -> Config:
    cluster = WORKERS if not listener.ext_proc else POOL_LIST if listener.follows_list else POOL
    route: Config = {"cluster": cluster, "timeout": _FOREVER}
    if listener.retries:
        route["retry_policy"] = {
            "retry_on": "reset,connect-failure,refused-stream,5xx",
            "num_retries": listener.retries,
        }
    return {"match": {"prefix": "/"}, "route": route}


def _listener(listener: Listener, service: PickerService, host: str, buffer_limit: int) -> Config:
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": _TYPES + "filters.http.router.v3.Router"},
    }
    connections: Config = {
        "@type": _TYPES + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": listener.name,
        "generate_request_id": True,
        "preserve_external_request_id": True,
        "stream_idle_timeout": _FOREVER,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "include_request_attempt_count": True,
                    "routes": [_route(listener)],
                }
            ]
        },
        "http_filters": [_ext_proc(listener, service), router] if listener.ext_proc else [router],
    }
    if listener.ext_proc and service.failure_mode_allow:
        # without an answer of the picker nobody else takes away what a client wrote there itself
        connections["early_header_mutation_extensions"] = [_forget_forged()]
    if listener.ext_proc and service.access_log:
        connections["access_log_options"] = {"access_log_flush_interval": "1s"}
        connections["access_log"] = [_access_log(listener, service)]
    return {
        "name": listener.name,
        "address": _socket(f"{host}:{listener.port}"),
        "per_connection_buffer_limit_bytes": buffer_limit,
        "filter_chains": [
            {
                "filters": [
                    {"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}
                ]
            }
        ],
    }


def _cluster(name: str, kind: str, balance: str, buffer_limit: int) -> Config:
    # Envoy's own limits (1024 requests, 3 retries at a time) would turn a burst or a lost replica into errors
    names = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
    most = dict.fromkeys(names, _MANY)
    return {
        "name": name,
        "type": kind,
        "lb_policy": balance,
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": buffer_limit,
        "circuit_breakers": {"thresholds": [most]},
    }


def _endpoints(name: str, addresses: Iterable[str]) -> Config:
    lines = [{"endpoint": {"address": _socket(address)}} for address in addresses]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": lines}]}


def _picker_cluster(name: str, service: PickerService, buffer_limit: int) -> Config:
    cluster = _cluster(name, "STATIC", service.balance, buffer_limit)
    http2: Config = {
        "connection_keepalive": {"interval": "2s", "timeout": "2s"},
        # Envoy's own limits (1000 and 10000) would close the connection, and with it everybody's streams, when a
        # thousand clients leave at one time: each is a reset that waits to be written
        "max_outbound_control_frames": _MANY,
        "max_outbound_frames": _MANY,
    }
    probe: Config = {"tcp_health_check": {}}
    if service.health_check == "grpc":
        probe = {"grpc_health_check": {"service_name": EXT_PROC_SERVICE}}
    cluster |= {
        "load_assignment": _endpoints(name, service.addresses),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _TYPES + "upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": http2},
            }
        },
        "common_lb_config": {"healthy_panic_threshold": {"value": _panic_percent(service)}},
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "1s",
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                **probe,
            }
        ],
        "outlier_detection": {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": 1,
            "enforcing_consecutive_local_origin_failure": 100,
            "enforcing_consecutive_5xx": 0,
            "enforcing_consecutive_gateway_failure": 0,
            "enforcing_success_rate": 0,
            "enforcing_local_origin_success_rate": 0,
            "interval": "0.2s",
            "base_ejection_time": "5s",
            # below 100, or one hiccup of every replica at once would leave none for five seconds
            "max_ejection_percent": 50,
        },
    }
    if service.tls:
        cluster["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": _TYPES + "transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2"]},
            },
        }
    return cluster


def _panic_percent(service: PickerService) -> int:
    """Below which share of healthy replicas Envoy asks all of them: only when none is left, or not even then.

    On a busy machine all replicas may miss one health check at once. With 0 every request then fails until the next
    check (2000 requests in 8 s on two cores: 400 of them got 500); with 1 they are asked all the same. Failing open
    needs the 0, for there a request that no replica takes must go on without one.
    """
    return 0 if service.failure_mode_allow else 1


def _pool_cluster(buffer_limit: int) -> Config:
    return _cluster(POOL, "ORIGINAL_DST", "CLUSTER_PROVIDED", buffer_limit) | {
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION_HEADER}
    }


def _workers_cluster(workers: Sequence[str], buffer_limit: int) -> Config:
    return _cluster(WORKERS, "STATIC", "ROUND_ROBIN", buffer_limit) | {
        "load_assignment": _endpoints(WORKERS, workers)
    }


def _list_cluster(workers: Sequence[str], buffer_limit: int) -> Config:
    """Tries the endpoints of the destination header in their order, and says which one in the served metadata."""
    override = {
        "@type": _TYPES + "load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [{"header": DESTINATION_HEADER}],
        "selected_host_key": {"key": BALANCER_NAMESPACE, "path": [{"key": SERVED_KEY}]},
        # past the end of the list: with as many retries as fallbacks it is never asked
        "fallback_policy": _policies(
            "round_robin", {"@type": _TYPES + "load_balancing_policies.round_robin.v3.RoundRobin"}
        ),
    }
    cluster = _cluster(POOL_LIST, "STATIC", "LOAD_BALANCING_POLICY_CONFIG", buffer_limit)
    return cluster | {
        "load_balancing_policy": _policies("override_host", override),
        "load_assignment": _endpoints(POOL_LIST, workers),
    }


def _policies(name: str, config: Config) -> Config:
    named = {"name": f"envoy.load_balancing_policies.{name}", "typed_config": config}
    return {"policies": [{"typed_extension_config": named}]}
