"""What the rows share: constants, the register of checks, and ways to look at answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from picker.serving.effects import Decide, Effect
from picker.serving.gateway import POST, common_of, headers_set
from picker.serving.modes import BodyMode
from picker.serving.reading import BALANCER_NAMESPACE, SUBSET_KEY
from picker.serving.seam import (
    BOOKING_HEADER,
    DESTINATION_HEADER,
    REASON_HEADER,
    HttpRequest,
    Picked,
    Refused,
)
from picker.serving.testing import PICKED, Gateway, answers
from picker.serving.wire.extproc_pb2 import (
    ProcessingResponse,
)
from tests.unit.picking.world import World

MODES = [mode for mode in BodyMode if mode is not BodyMode.UNTOLD]
NONE, STREAMED, BUFFERED, PARTIAL, DUPLEX = MODES
GET = {":method": "GET", ":path": "/v1/models"}
BODY = b'{"model":"m","prompt":"p"}'
LONG = bytes(range(256)) * 800
FORGED = {
    DESTINATION_HEADER: "6.6.6.6:1", BOOKING_HEADER: "forged", "x-gateway-destination-endpoint-served": "6.6.6.6:1",
    SUBSET_KEY: "6.6.6.6:1", "x-llm-d-inference-objective": "vip", "x-gateway-inference-fairness-id": "me",
    "x-gateway-model-name-rewrite": "other", "x-slo-ttft-ms": "1", "x-llm-d-video-fps": "1", REASON_HEADER: "mine",
    "x-prefiller-host-port": "6.6.6.6:1", "x-data-parallel-host-port": "6.6.6.6:1",
}  # fmt: skip


Check = Callable[[], Awaitable[None] | None]
CHECKS: dict[str, Check] = {}


def keeps(duty: str) -> Callable[[Check], Check]:
    """The decorated check is that duty's row."""

    def register(check: Check) -> Check:
        assert duty not in CHECKS, duty
        CHECKS[duty] = check
        return check

    return register


def kinds(effects: list[Effect]) -> list[str | None]:
    return [answer.WhichOneof("response") for answer in answers(effects)]


def asked(effects: list[Effect]) -> HttpRequest:
    (decide,) = [effect for effect in effects if isinstance(effect, Decide)]
    return decide.request


def asks(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Decide) for effect in effects)


def decides(answer: ProcessingResponse, destination: str = PICKED.destination) -> bool:
    """Whether an answer carries the whole decision, in its three places."""
    metadata = answer.dynamic_metadata.fields[BALANCER_NAMESPACE].struct_value.fields
    places = [
        headers_set(answer).get(DESTINATION_HEADER) == destination,
        metadata[DESTINATION_HEADER].string_value == destination,
        bool(common_of(answer).clear_route_cache),
    ]
    assert all(places) or not any(places), places
    return all(places)


def changes_nothing(answer: ProcessingResponse) -> bool:
    common = common_of(answer)
    return not (
        common.HasField("header_mutation")
        or common.HasField("body_mutation")
        or common.clear_route_cache
        or answer.HasField("dynamic_metadata")
    )


def streamed(answer: ProcessingResponse) -> Any:
    mutation = common_of(answer).body_mutation
    assert mutation.WhichOneof("mutation") == "streamed_response"
    return mutation.streamed_response


def at_body(
    mode: BodyMode, headers: Mapping[str, str] = POST, **more: Any
) -> tuple[Gateway, list[ProcessingResponse]]:
    """A stream whose whole request came; with the answers so far."""
    gateway = Gateway(mode=mode, **more)
    said = answers(gateway.request_headers(headers))
    if mode.collects:
        said += answers(gateway.request_body(BODY))
    return gateway, said


def picked(mode: BodyMode = BUFFERED, response_mode: BodyMode = NONE, **more: Any) -> Gateway:
    gateway, _ = at_body(mode, response_mode=response_mode, **more)
    gateway.decided()
    return gateway


def all_said(
    gateway: Gateway, mode: BodyMode, response_mode: BodyMode, answer: Picked | Refused
) -> list[ProcessingResponse]:
    """Everything that is said on a whole stream."""
    effects = gateway.request_headers({**POST, "content-length": str(len(BODY))})
    if mode.collects:
        effects += gateway.request_body(BODY)
    effects += gateway.decided(answer)
    if mode is STREAMED:
        effects += gateway.request_body(BODY)
    effects += gateway.response_headers()
    if response_mode is not NONE:
        effects += gateway.response_body(b"{", end=False) + gateway.response_body(b"}", end=True)
    return answers(effects)


async def product(gateway: Gateway, effects: list[Effect], world: World) -> list[ProcessingResponse]:
    """The product decides what the exchange asks for."""
    return answers(gateway.decided(await world.picking.decide(asked(effects))))


def error_of(answer: ProcessingResponse) -> tuple[int, str, str]:
    immediate = answer.immediate_response
    told = json.loads(immediate.body)["error"]
    return immediate.status.code, told["type"], told["code"]
