"""What a gateway sends, message by message, and what it reads of our answers: for probes, harnesses and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picker.serving.modes import BodyMode
from picker.serving.reading import ATTRIBUTES
from picker.serving.wire.extproc_pb2 import (
    HeaderMap,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ProcessingMode,
    ProcessingRequest,
    ProcessingResponse,
)

POST = {":method": "POST", ":path": "/v1/completions"}


def header_map(headers: Mapping[str, str]) -> HeaderMap:
    """Headers as Envoy writes them: raw bytes."""
    return HeaderMap(
        headers=[HeaderValue(key=name, raw_value=value.encode()) for name, value in headers.items()]
    )


def request_headers(
    headers: Mapping[str, str] = POST,
    *,
    end: bool = False,
    mode: BodyMode = BodyMode.UNTOLD,
    response_mode: BodyMode = BodyMode.NONE,
    ahead: bool = False,
) -> ProcessingRequest:
    """The first message of a stream; without a mode, one of a gateway that names none."""
    message = ProcessingRequest(request_headers=HttpHeaders(headers=header_map(headers), end_of_stream=end))
    if mode is not BodyMode.UNTOLD:
        message.protocol_config.request_body_mode = _wire(mode)
        message.protocol_config.response_body_mode = _wire(response_mode)
        message.protocol_config.send_body_without_waiting_for_header_response = ahead
    return message


def _wire(mode: BodyMode) -> ProcessingMode.BodySendMode.ValueType:
    return ProcessingMode.BodySendMode.Value(mode.name)


def request_body(body: bytes, *, end: bool = True) -> ProcessingRequest:
    """A piece of a request's body."""
    return ProcessingRequest(request_body=HttpBody(body=body, end_of_stream=end))


def request_trailers() -> ProcessingRequest:
    """A request's trailers."""
    return ProcessingRequest(request_trailers=HttpTrailers())


def response_headers(
    status: int = 200,
    *,
    end: bool = False,
    headers: Mapping[str, str] | None = None,
    attributes: Mapping[str, str | float] | None = None,
) -> ProcessingRequest:
    """Response headers, with response attributes where some are given."""
    message = ProcessingRequest(
        response_headers=HttpHeaders(
            headers=header_map({":status": str(status), **(headers or {})}), end_of_stream=end
        )
    )
    if attributes:
        message.attributes[ATTRIBUTES].update(dict(attributes))
    return message


def response_body(body: bytes, *, end: bool = False) -> ProcessingRequest:
    """A piece of a response's body."""
    return ProcessingRequest(response_body=HttpBody(body=body, end_of_stream=end))


def response_trailers() -> ProcessingRequest:
    """A response's trailers."""
    return ProcessingRequest(response_trailers=HttpTrailers())


def headers_set(response: ProcessingResponse) -> dict[str, str]:
    """The headers that an answer sets, of whatever kind it is."""
    if response.HasField("immediate_response"):
        mutation = response.immediate_response.headers
    else:
        mutation = common_of(response).header_mutation
    return {option.header.key: option.header.raw_value.decode() for option in mutation.set_headers}


def common_of(response: ProcessingResponse) -> Any:
    """The common part of an answer to headers or to a body."""
    kind = response.WhichOneof("response")
    return getattr(response, str(kind)).response
