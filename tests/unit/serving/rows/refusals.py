"""Rows of chapter 4: refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping

from picker.serving.gateway import POST, headers_set, request_headers
from picker.serving.reading import SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.refusals import PICK_FAILED
from picker.serving.seam import (
    REASON_HEADER,
    Refused,
)
from picker.serving.testing import Gateway, answers
from tests.unit.picking.world import A, World, completion
from tests.unit.serving.rows.shared import (
    BODY,
    BUFFERED,
    DUPLEX,
    GET,
    NONE,
    STREAMED,
    at_body,
    error_of,
    keeps,
    kinds,
    product,
)


async def _refusals(
    world: World, headers: Mapping[str, str], *, end: bool, hint: object = None
) -> tuple[int, str, str]:
    gateway = Gateway(mode=DUPLEX)
    message = request_headers(headers, end=end, mode=DUPLEX)
    if hint is not None:
        message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update({SUBSET_KEY: hint})  # type: ignore[dict-item]
    effects = gateway.send(message)
    if not end:
        effects = gateway.request_body(BODY)
    (answer,) = await product(gateway, effects, world)
    reason = headers_set(answer).get(REASON_HEADER)
    assert reason == (
        "rejected-saturated" if answer.immediate_response.status.code == 429 else "rejected-no-endpoints"
    )
    assert headers_set(answer)["retry-after"]
    return error_of(answer)


@keeps("4-1")
async def _empty_pool() -> None:
    world = World()
    world.workers.names.clear()
    for headers, end in ((POST, False), (GET, True)):
        assert await _refusals(world, headers, end=end) == (503, "service_unavailable", "no_endpoints")
    world.close()


@keeps("4-2")
async def _no_member() -> None:
    world = World()
    for hint in ([], "", ["10.9.9.9:8000"], "10.9.9.9", [A.replace("8000", "8001")]):
        for headers, end in ((POST, False), (GET, True)):
            said = await _refusals(world, headers, end=end, hint=hint)
            assert said == (503, "service_unavailable", "no_endpoints")
    world.close()


@keeps("4-3")
def _shutting_down() -> None:
    gateway, _ = at_body(DUPLEX)
    (answer,) = answers(gateway.drain())
    assert error_of(answer) == (503, "service_unavailable", "shutting_down")
    assert headers_set(answer)[REASON_HEADER] == "rejected-shutting-down"
    assert headers_set(answer)["retry-after"]


@keeps("4-4")
async def _full() -> None:
    world = World(max_worker_requests=1)
    for _ in range(3):
        await world.picking.decide(completion([1, 2, 3]))
    assert await _refusals(world, POST, end=False) == (429, "rate_limit_error", "saturated")
    world.close()


@keeps("4-6")
async def _bad() -> None:
    world = World()
    for body in (
        b"{",
        b"[]",
        b'{"model":"m"}',
        b'{"model":7,"prompt":"p"}',
        b'{"model":"m","prompt":{"a":1}}',
    ):
        gateway = Gateway(mode=DUPLEX)
        gateway.request_headers()
        (answer,) = await product(gateway, gateway.request_body(body), world)
        assert error_of(answer) == (400, "invalid_request_error", "bad_request")
        assert "retry-after" not in headers_set(answer)
    world.close()


@keeps("4-8")
def _own_fault() -> None:
    (answer,) = answers(at_body(BUFFERED)[0].decided(PICK_FAILED))
    assert error_of(answer) == (500, "server_error", "internal")


@keeps("4-9")
def _gone() -> None:
    gateway, _ = at_body(BUFFERED)
    assert answers(gateway.cancel()) == []


@keeps("4-10")
def _json() -> None:
    refusal = Refused(400, "invalid_request_error", "bad_request", 'It said "no"\n\u00e4', param="prompt")
    (answer,) = answers(at_body(BUFFERED)[0].decided(refusal))
    told = {"message": refusal.message, "type": refusal.type, "param": "prompt", "code": "bad_request"}
    assert json.loads(answer.immediate_response.body) == {"error": told}
    assert headers_set(answer)["content-type"] == "application/json"


@keeps("4-11")
def _again_later() -> None:
    for status in (429, 503):
        (answer,) = answers(at_body(BUFFERED)[0].decided(Refused(status, "t", "c", "m", "why", 7)))
        assert (headers_set(answer)["retry-after"], headers_set(answer)[REASON_HEADER]) == ("7", "why")


@keeps("4-12")
def _details() -> None:
    (answer,) = answers(at_body(BUFFERED)[0].decided(Refused(429, "t", "saturated", "m")))
    assert answer.immediate_response.details == "picker_saturated"


@keeps("4-13")
def _first() -> None:
    refusal = Refused(429, "t", "c", "m")
    for mode in (NONE, STREAMED, DUPLEX):
        gateway, before = at_body(mode)
        assert before == []
        assert kinds(gateway.decided(refusal)) == ["immediate_response"]
    too_long = Gateway(mode=DUPLEX)
    effects = too_long.request_headers({**POST, "content-length": "99999999"})
    assert kinds(effects) == ["immediate_response"]
