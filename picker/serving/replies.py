"""Our answers to the gateway, one builder per kind of message."""

from __future__ import annotations

import json
from collections.abc import Iterable

from picker.serving.modes import BodyMode
from picker.serving.reading import BALANCER_NAMESPACE
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER, REASON_HEADER, Picked, Refused
from picker.serving.wire.extproc_pb2 import (
    CommonResponse,
    HeaderMutation,
    HeaderValueOption,
    ProcessingMode,
    ProcessingResponse,
    TrailersResponse,
)

_OVERWRITE = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

LENGTH_HEADER = "content-length"

DETAILS_PREFIX = "picker_"
"""What the response code details of our refusals start with, in the gateway's log."""


def headers_passed(remove: Iterable[str] = ()) -> ProcessingResponse:
    """Request headers go on, without those named."""
    response = ProcessingResponse()
    response.request_headers.response.SetInParent()
    names = list(remove)
    if names:
        response.request_headers.response.header_mutation.remove_headers.extend(names)
    return response


def headers_decided(
    picked: Picked, remove: Iterable[str], override: tuple[BodyMode, BodyMode] | None = None
) -> ProcessingResponse:
    """Request headers go on to the worker; ``override`` asks for these body modes, request's and response's."""
    response = ProcessingResponse()
    _decide(response, response.request_headers.response, picked, remove)
    if override is not None:
        _override(response.mode_override, *override)
    return response


def body_decided(
    picked: Picked, remove: Iterable[str], *, body: bytes | None = None, length: bool = False
) -> ProcessingResponse:
    """A buffered body goes on to the worker, unchanged or as ``body``; ``length`` says its size in the headers too.

    Envoy 1.40 answers 500 by itself where a changed body does not match a ``content-length`` that is there, and drops
    that header by itself in BUFFERED_PARTIAL.
    """
    response = ProcessingResponse()
    common = response.request_body.response
    _decide(response, common, picked, remove)
    if body is not None:
        common.body_mutation.body = body
        if length:
            _set(common.header_mutation, ((LENGTH_HEADER, str(len(body))),))
    return response


def body_passed() -> ProcessingResponse:
    """A piece of a request body goes on unchanged."""
    response = ProcessingResponse()
    response.request_body.response.SetInParent()
    return response


def trailers_passed() -> ProcessingResponse:
    """Request trailers go on unchanged."""
    return ProcessingResponse(request_trailers=TrailersResponse())


def response_headers_passed() -> ProcessingResponse:
    """Response headers go on unchanged."""
    response = ProcessingResponse()
    response.response_headers.response.SetInParent()
    return response


def response_body_passed() -> ProcessingResponse:
    """A piece of a response body goes on unchanged."""
    response = ProcessingResponse()
    response.response_body.response.SetInParent()
    return response


def response_body_changed(body: bytes, *, length: bool = False) -> ProcessingResponse:
    """A piece of a response body goes on as ``body``, empty for nothing; ``length`` says its size in the headers too.

    Headers can be changed here only where the gateway holds them back for the body: in BUFFERED.
    """
    response = ProcessingResponse()
    common = response.response_body.response
    common.body_mutation.body = body
    if length:
        _set(common.header_mutation, ((LENGTH_HEADER, str(len(body))),))
    return response


def response_trailers_passed() -> ProcessingResponse:
    """Response trailers go on unchanged."""
    return ProcessingResponse(response_trailers=TrailersResponse())


def refused(refusal: Refused) -> ProcessingResponse:
    """An immediate response with a JSON body in OpenAI's error shape."""
    response = ProcessingResponse()
    immediate = response.immediate_response
    immediate.status.code = refusal.status
    immediate.body = json.dumps(
        {
            "error": {
                "message": refusal.message,
                "type": refusal.type,
                "param": refusal.param,
                "code": refusal.code,
            }
        },
        ensure_ascii=False,
    ).encode("utf-8", "replace")
    immediate.details = DETAILS_PREFIX + refusal.code
    headers = [("content-type", "application/json")]
    if refusal.reason:
        headers.append((REASON_HEADER, refusal.reason))
    if refusal.retry_after is not None:
        headers.append(("retry-after", str(refusal.retry_after)))
    _set(immediate.headers, headers)
    return response


def _decide(
    response: ProcessingResponse, common: CommonResponse, picked: Picked, remove: Iterable[str]
) -> None:
    values = (
        (DESTINATION_HEADER, picked.destination),
        (BOOKING_HEADER, picked.booking_id),
        *picked.set_headers,
    )
    _set(common.header_mutation, values)
    written = {name for name, _ in values}
    common.header_mutation.remove_headers.extend(name for name in remove if name not in written)
    common.clear_route_cache = True
    fields = response.dynamic_metadata.fields
    fields[BALANCER_NAMESPACE].struct_value.fields[DESTINATION_HEADER].string_value = picked.destination


def _override(mode: ProcessingMode, request: BodyMode, response: BodyMode) -> None:
    """Every field counts, unset ones too, so all are said.

    Trailers SEND keep the stream to the end of the response where no body is shown.
    """
    mode.request_header_mode = ProcessingMode.SEND
    mode.response_header_mode = ProcessingMode.SEND
    mode.request_body_mode = ProcessingMode.BodySendMode.Value(request.name)
    mode.response_body_mode = ProcessingMode.BodySendMode.Value(response.name)
    mode.response_trailer_mode = ProcessingMode.SEND


def _set(mutation: HeaderMutation, headers: Iterable[tuple[str, str]]) -> None:
    add = mutation.set_headers.add
    for name, value in headers:
        option = add()
        header = option.header
        # raw bytes only: a text value arrives empty at the worker from Envoy 1.27 on
        header.key, header.raw_value = name, value.encode()
        option.append_action = _OVERWRITE
