"""The refusals that the gateway's side makes by itself."""

from __future__ import annotations

from picker.serving.seam import Refused
from picker.serving.statuses import Why, refusal


class RefusedError(Exception):
    """The request is to be answered with this refusal; what it is counted under is counted."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def too_large(limit: int) -> Refused:
    """413: the body is over the limit, in bytes."""
    return refusal(Why.REQUEST_TOO_LARGE, f"The request body is larger than {limit} bytes.")


HEADERS_TOO_LARGE = refusal(Why.HEADERS_TOO_LARGE, "The request has too many or too large headers.")
TOO_MANY_PIECES = refusal(Why.REQUEST_TOO_LARGE, "The request body came in too many pieces.")
BODY_TIMEOUT = refusal(Why.REQUEST_TIMEOUT, "The request body did not come in time.")
MEMORY_FULL = refusal(Why.SATURATED, "The memory for request bodies is in use; please try again.")
STREAMS_FULL = refusal(Why.SATURATED, "Too many requests are open; please try again.")
PICK_TIMEOUT = refusal(Why.DECISION_TIMEOUT, "No worker was chosen in time; please try again.")
SHUTTING_DOWN = refusal(Why.SHUTTING_DOWN, "This endpoint picker is shutting down; please try again.")
PICK_FAILED = refusal(Why.INTERNAL, "The endpoint picker failed to choose a worker.")
OUT_OF_ORDER = refusal(
    Why.GATEWAY_PROTOCOL,
    "The gateway's ext_proc messages came in an order that cannot be served; "
    "its processing mode must send request headers.",
)


def unsupported_mode(number: int) -> Refused:
    """500: the gateway is set to a body mode that is not served."""
    return refusal(
        Why.UNSUPPORTED_BODY_MODE,
        f"The gateway's ext_proc filter uses body mode {number}, which is not served.",
    )
