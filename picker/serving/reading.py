"""From a gateway's messages to values: everything is bounded, nothing raises on what a client wrote."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from google.protobuf.struct_pb2 import Struct, Value

from picker.serving.seam import Responded
from picker.serving.wire.extproc_pb2 import HeaderMap, ProcessingRequest

MAX_HEADERS = 1_000
MAX_HEADER_BYTES = 256 * 1024
MAX_SUBSET = 10_000
MAX_ENDPOINT = 512
MAX_CONTENT_TYPE = 256
MAX_ENCODING = 64
MAX_NUMBER = 10
"""Digits."""

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
BALANCER_NAMESPACE = "envoy.lb"
SERVED_KEY = "x-gateway-destination-endpoint-served"
ATTRIBUTES = "envoy.filters.http.ext_proc"

_NO_WORKER = 0x2 | 0x20 | 0x80 | 0x100
"""Response flags of Envoy which say that no worker was reached: NoHealthyUpstream, UpstreamConnectionFailure,
UpstreamOverflow, NoRouteFound."""

_CONTROL = frozenset(
    {
        "x-encoder-hosts-ports",
        "x-kv-cache-source-host-port",
        "x-prefiller-host-port",
    }
)
_CONTROL_PREFIXES = (
    "x-data-parallel-",
    "x-gateway-destination-endpoint",
    "x-gateway-inference-",
    "x-gateway-model-name-rewrite",
    "x-llm-d-",
    "x-picker-",
    "x-slo-",
)


class HeadersTooLargeError(Exception):
    """More headers, or longer ones, than are read."""


def is_control(name: str) -> bool:
    """Whether a header steers pickers and workers: never trusted from a client, never passed on from one."""
    return name in _CONTROL or name.startswith(_CONTROL_PREFIXES)


def headers_of(message: HeaderMap) -> dict[str, str]:
    """Headers by lower-case name, pseudo headers included; of a repeated header the last value.

    Raises:
        HeadersTooLargeError: past `MAX_HEADERS` or `MAX_HEADER_BYTES`.
    """
    if len(message.headers) > MAX_HEADERS or message.ByteSize() > MAX_HEADER_BYTES:
        raise HeadersTooLargeError
    return {
        header.key.lower(): raw.decode("utf-8", "replace") if (raw := header.raw_value) else header.value
        for header in message.headers
    }


def declared_length(headers: Mapping[str, str]) -> int | None:
    """The body's length as ``content-length`` says it, None where it does not."""
    text = headers.get("content-length", "")
    return int(text) if len(text) <= 19 and text.isascii() and text.isdigit() else None


def subset_of(message: ProcessingRequest) -> tuple[str, ...] | None:
    """The endpoints that the gateway allows; None where it does not limit them.

    A hint that cannot be read limits to nothing: it must never widen to the whole pool.
    """
    if not message.HasField("metadata_context"):
        return None
    hint = _field(message.metadata_context.filter_metadata, SUBSET_NAMESPACE, SUBSET_KEY)
    if hint is None:
        return None
    kind = hint.WhichOneof("kind")
    if kind == "string_value":
        words = hint.string_value.split(",")
    elif kind == "list_value":
        words = [value.string_value for value in hint.list_value.values[:MAX_SUBSET]]
    else:
        words = []
    return tuple(word.strip() for word in words[:MAX_SUBSET] if word.strip())


def attributes_of(message: ProcessingRequest) -> dict[str, str]:
    """The attributes that the gateway was configured to send, as text."""
    if ATTRIBUTES not in message.attributes:
        return {}
    fields = message.attributes[ATTRIBUTES].fields
    return {name: _text(value) for name, value in list(fields.items())[:64]}


def responded(
    headers: Mapping[str, str], attributes: Mapping[str, str], served: str
) -> tuple[Responded, bool]:
    """What response headers tell, and whether the gateway answered without reaching any worker.

    ``served`` is who served by the metadata; empty: it does not say.
    """
    served = served or attributes.get("upstream.address", "")
    attempts, flags = 1, 0
    if attributes:
        attempts = _number(attributes.get("upstream.request_attempt_count", "1"))
        flags = _number(attributes.get("response.flags", "0"))
    response = _response(
        headers.get(":status", "0")[: MAX_NUMBER + 1],
        headers.get("content-type", "")[:MAX_CONTENT_TYPE],
        headers.get("content-encoding", "")[:MAX_ENCODING],
        served if len(served) <= MAX_ENDPOINT else "",
        max(1, attempts),
    )
    return response, flags & _NO_WORKER != 0 and attempts <= 1


@lru_cache(maxsize=512)  # most responses are alike
def _response(status: str, content_type: str, encoding: str, served: str, attempts: int) -> Responded:
    content_type, encoding = content_type.lower(), encoding.strip().lower()
    return Responded(
        status=_number(status),
        served=served,
        attempts=attempts,
        event_stream=content_type.startswith("text/event-stream"),
        content_type=content_type,
        content_encoding="" if encoding == "identity" else encoding,
    )


def served_of(message: ProcessingRequest) -> str:
    """The endpoint that served by the gateway's metadata; empty where it does not say."""
    if not message.HasField("metadata_context"):
        return ""
    metadata = message.metadata_context.filter_metadata
    served = _field(metadata, BALANCER_NAMESPACE, SERVED_KEY)
    return served.string_value if served is not None else ""


def _field(metadata: Mapping[str, Struct], namespace: str, key: str) -> Value | None:
    if namespace not in metadata:
        return None
    return metadata[namespace].fields.get(key)


def _text(value: Value) -> str:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        return str(int(number)) if number.is_integer() else str(number)
    return str(value.bool_value).lower() if kind == "bool_value" else ""


def _number(text: str) -> int:
    return int(text) if len(text) <= MAX_NUMBER and text.isascii() and text.isdigit() else 0
