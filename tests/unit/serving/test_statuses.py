"""What a client is told of each reason for which its request gets no worker."""

from __future__ import annotations

import pytest

from picker.serving import refusals
from picker.serving.seam import Refused
from picker.serving.statuses import STATUSES, Why, refusal

TABLE = {
    Why.NO_ENDPOINTS: (503, "service_unavailable", "rejected-no-endpoints", True),
    Why.SHUTTING_DOWN: (503, "service_unavailable", "rejected-shutting-down", True),
    Why.DECISION_TIMEOUT: (503, "service_unavailable", "", True),
    Why.SATURATED: (429, "rate_limit_error", "rejected-saturated", True),
    Why.BAD_REQUEST: (400, "invalid_request_error", "", False),
    Why.REQUEST_TIMEOUT: (408, "invalid_request_error", "", False),
    Why.REQUEST_TOO_LARGE: (413, "invalid_request_error", "", False),
    Why.HEADERS_TOO_LARGE: (431, "invalid_request_error", "", False),
    Why.INTERNAL: (500, "server_error", "", False),
    Why.GATEWAY_PROTOCOL: (500, "server_error", "", False),
    Why.UNSUPPORTED_BODY_MODE: (500, "server_error", "", False),
}


@pytest.mark.parametrize("why", list(Why))
def test_each_reason_becomes_one_status(why: Why) -> None:
    told = refusal(why, "it is so", param="prompt")
    assert (told.status, told.type, told.reason, told.retry_after is not None) == TABLE[why]
    assert (told.code, told.message, told.param) == (str(why), "it is so", "prompt")


def test_every_reason_has_a_status() -> None:
    assert STATUSES.keys() == set(Why)


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (refusals.HEADERS_TOO_LARGE, Why.HEADERS_TOO_LARGE),
        (refusals.TOO_MANY_PIECES, Why.REQUEST_TOO_LARGE),
        (refusals.too_large(7), Why.REQUEST_TOO_LARGE),
        (refusals.BODY_TIMEOUT, Why.REQUEST_TIMEOUT),
        (refusals.MEMORY_FULL, Why.SATURATED),
        (refusals.STREAMS_FULL, Why.SATURATED),
        (refusals.PICK_TIMEOUT, Why.DECISION_TIMEOUT),
        (refusals.SHUTTING_DOWN, Why.SHUTTING_DOWN),
        (refusals.PICK_FAILED, Why.INTERNAL),
        (refusals.OUT_OF_ORDER, Why.GATEWAY_PROTOCOL),
        (refusals.unsupported_mode(9), Why.UNSUPPORTED_BODY_MODE),
    ],
    ids=lambda value: value if isinstance(value, Why) else "",
)
def test_the_gateways_side_refuses_for_these_reasons(refused: Refused, why: Why) -> None:
    assert refused.code == why
    assert refused.status == TABLE[why][0]
