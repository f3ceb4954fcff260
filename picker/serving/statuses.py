"""Why a request gets no worker, and what its client is then told: the one place where a reason becomes a status.

503: there is no capacity. 429: there is, and it is busy. 400: the request cannot be understood. What is asked for again
soon may succeed with 429 and 503, so these say when.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from picker.serving.seam import Refused

RETRY_AFTER = 1
"""Seconds that a client is asked to wait."""


class Why(StrEnum):
    """Why a request gets no worker: the error's ``code``."""

    NO_ENDPOINTS = "no_endpoints"  # the pool, or what the gateway allows of it, is empty
    SHUTTING_DOWN = "shutting_down"  # this replica goes away
    DECISION_TIMEOUT = "decision_timeout"  # no pick came in time
    SATURATED = "saturated"  # everything that could take it is at its limit
    BAD_REQUEST = "bad_request"  # it cannot be understood
    REQUEST_TIMEOUT = "request_timeout"  # its body does not come
    REQUEST_TOO_LARGE = "request_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    INTERNAL = "internal"  # a defect of ours
    GATEWAY_PROTOCOL = "gateway_protocol"  # the gateway's messages make no sense
    UNSUPPORTED_BODY_MODE = "unsupported_body_mode"  # the gateway is set to a mode that is not served


class Status(NamedTuple):
    """What the client is told of a reason."""

    status: int
    type: str
    reason: str = ""
    """Value of the drop reason header; empty: none."""
    retry_after: int | None = None
    """Seconds."""


_CLIENT, _UNAVAILABLE, _BUSY, _OURS = (
    "invalid_request_error",
    "service_unavailable",
    "rate_limit_error",
    "server_error",
)

STATUSES: Mapping[Why, Status] = {
    Why.NO_ENDPOINTS: Status(503, _UNAVAILABLE, "rejected-no-endpoints", RETRY_AFTER),
    Why.SHUTTING_DOWN: Status(503, _UNAVAILABLE, "rejected-shutting-down", RETRY_AFTER),
    Why.DECISION_TIMEOUT: Status(503, _UNAVAILABLE, retry_after=RETRY_AFTER),
    Why.SATURATED: Status(429, _BUSY, "rejected-saturated", RETRY_AFTER),
    Why.BAD_REQUEST: Status(400, _CLIENT),
    Why.REQUEST_TIMEOUT: Status(408, _CLIENT),
    Why.REQUEST_TOO_LARGE: Status(413, _CLIENT),
    Why.HEADERS_TOO_LARGE: Status(431, _CLIENT),
    Why.INTERNAL: Status(500, _OURS),
    Why.GATEWAY_PROTOCOL: Status(500, _OURS),
    Why.UNSUPPORTED_BODY_MODE: Status(500, _OURS),
}


def refusal(why: Why, message: str, *, param: str | None = None) -> Refused:
    """What the gateway is to answer; ``message`` is for people, ``param`` names the field that is wrong."""
    told = STATUSES[why]
    return Refused(told.status, told.type, str(why), message, told.reason, told.retry_after, param)
