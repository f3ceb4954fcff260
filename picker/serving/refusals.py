"""The refusals that the gateway's side makes by itself."""

from __future__ import annotations

from picker.serving.seam import Refused

RETRY_AFTER = 1
"""Seconds that a client is asked to wait."""


class RefusedError(Exception):
    """The request is to be answered with this refusal; what it is counted under is counted."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def _bad(status: int, code: str, message: str) -> Refused:
    return Refused(status=status, type="invalid_request_error", code=code, message=message)


def _own(code: str, message: str) -> Refused:
    return Refused(status=500, type="server_error", code=code, message=message)


def _busy(message: str) -> Refused:
    return Refused(
        status=429,
        type="rate_limit_error",
        code="saturated",
        message=message,
        reason="rejected-saturated",
        retry_after=RETRY_AFTER,
    )


def too_large(limit: int) -> Refused:
    """413: the body is over the limit, in bytes."""
    return _bad(413, "request_too_large", f"The request body is larger than {limit} bytes.")


HEADERS_TOO_LARGE = _bad(431, "headers_too_large", "The request has too many or too large headers.")
TOO_MANY_PIECES = _bad(413, "request_too_large", "The request body came in too many pieces.")
BODY_TIMEOUT = _bad(408, "request_timeout", "The request body did not come in time.")
MEMORY_FULL = _busy("The memory for request bodies is in use; please try again.")
STREAMS_FULL = _busy("Too many requests are open; please try again.")
PICK_TIMEOUT = Refused(
    status=503,
    type="service_unavailable",
    code="decision_timeout",
    message="No worker was chosen in time; please try again.",
    retry_after=RETRY_AFTER,
)
SHUTTING_DOWN = Refused(
    status=503,
    type="service_unavailable",
    code="shutting_down",
    message="This endpoint picker is shutting down; please try again.",
    reason="rejected-shutting-down",
    retry_after=RETRY_AFTER,
)
PICK_FAILED = _own("internal", "The endpoint picker failed to choose a worker.")
OUT_OF_ORDER = _own(
    "gateway_protocol",
    "The gateway's ext_proc messages came in an order that cannot be served; "
    "its processing mode must send request headers.",
)


def unsupported_mode(number: int) -> Refused:
    """500: the gateway is set to a body mode that is not served."""
    return _own(
        "unsupported_body_mode",
        f"The gateway's ext_proc filter uses body mode {number}, which is not served.",
    )
