"""Rows of chapter 6: cases that other pickers and gateways met."""

from __future__ import annotations

from picker.serving.effects import Close, Decide, ResponseSeen
from picker.serving.gateway import POST, common_of, headers_set, request_headers
from picker.serving.reading import SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER, End, Picked
from picker.serving.testing import LIMITS, PICKED, Gateway, answers
from stateplane.booking import State
from tests.unit.picking.world import A, B, C, World
from tests.unit.serving.rows.shared import (
    BUFFERED,
    DUPLEX,
    GET,
    LONG,
    MODES,
    NONE,
    PARTIAL,
    STREAMED,
    asked,
    asks,
    at_body,
    decides,
    keeps,
    picked,
    product,
    streamed,
)


@keeps("6-1")
async def _in_order() -> None:
    world = World(fallbacks=2)
    gateway = Gateway(mode=NONE)
    (answer,) = await product(gateway, gateway.request_headers(), world)
    listed = headers_set(answer)[DESTINATION_HEADER]
    assert decides(answer, listed)
    assert sorted(listed.split(",")) == [A, B, C]
    booking = world.desk.view.booking(headers_set(answer)[BOOKING_HEADER])
    assert booking is not None
    assert booking.worker == listed.split(",")[0]
    world.close()


@keeps("6-2")
def _two_tries() -> None:
    gateway = picked()
    effects = gateway.response_headers(
        attributes={"upstream.address": "h:2", "upstream.request_attempt_count": 2}
    )
    (seen,) = [effect for effect in effects if isinstance(effect, ResponseSeen)]
    assert (seen.response.served, seen.response.attempts) == ("h:2", 2)
    gateway.now += 1
    gateway.half_close()
    assert gateway.overs == [(PICKED.booking_id, End.HALF_CLOSED)]


@keeps("6-3")
def _over_the_limit() -> None:
    for declared in (True, False):
        gateway = Gateway(mode=DUPLEX)
        length = {"content-length": str(LIMITS.max_body + 1)} if declared else {}
        effects = gateway.request_headers({**POST, **length})
        for _ in range(0 if declared else 7):
            effects += gateway.request_body(LONG, end=False)
        (answer,) = answers(effects)
        assert answer.immediate_response.status.code == 413
        assert effects[-1] == Close()


@keeps("6-4")
def _large() -> None:
    whole = b"x" * LIMITS.max_body
    for mode in (BUFFERED, PARTIAL, DUPLEX):
        gateway = Gateway(mode=mode)
        gateway.request_headers()
        assert asked(gateway.request_body(whole)).body == whole


@keeps("6-5")
def _no_metadata() -> None:
    for response_mode in MODES:
        gateway = picked(response_mode=response_mode)
        said = answers(gateway.response_headers())
        if response_mode is not NONE:
            said += answers(gateway.response_body(LONG)) + answers(gateway.response_body(b"", end=True))
        assert said
        assert not any(answer.HasField("dynamic_metadata") for answer in said)


@keeps("6-6")
async def _bodiless() -> None:
    world = World()
    gateway = Gateway(mode=BUFFERED)
    message = request_headers(GET, end=True, mode=BUFFERED)
    message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update({SUBSET_KEY: [B]})
    (answer,) = await product(gateway, gateway.send(message), world)
    assert headers_set(answer)[DESTINATION_HEADER] == B
    booking = headers_set(answer)[BOOKING_HEADER]
    standing = world.desk.view.booking(booking)
    assert standing is not None
    assert (standing.worker, standing.state) == (B, State.ACTIVE)
    gateway.response_headers(end=True)
    ((over, end),) = gateway.overs
    world.picking.over(over, end)
    assert world.desk.view.booking(booking) is None
    world.close()


@keeps("6-7")
async def _hints() -> None:
    two_ports = "10.0.0.1:8001"
    hints: dict[str, tuple[object, set[str]]] = {
        "text": (f"{B}, 10.9.9.9:1", {B}),
        "list": ([B, C], {B, C}),
        "host": ("10.0.0.1", {A, two_ports}),
        "port": ([two_ports], {two_ports}),
    }
    for hint, allowed in hints.values():
        world = World()
        world.workers.names.append(two_ports)
        world.index.add(two_ports)
        chosen = set()
        for _ in range(30):
            gateway = Gateway()
            message = request_headers(end=True)
            message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update({SUBSET_KEY: hint})  # type: ignore[dict-item]
            (answer,) = await product(gateway, gateway.send(message), world)
            chosen.add(headers_set(answer)[DESTINATION_HEADER])
        assert chosen == allowed
        world.close()


@keeps("6-8")
def _status() -> None:
    for status in (200, 404, 503):
        effects = picked().response_headers(status, headers={"status": "999"})
        (seen,) = [effect for effect in effects if isinstance(effect, ResponseSeen)]
        assert seen.response.status == status


@keeps("6-9")
def _held_once() -> None:
    for mode in (BUFFERED, PARTIAL, DUPLEX):
        gateway = Gateway(mode=mode)
        gateway.request_headers()
        effects = gateway.request_body(LONG)
        assert sum(isinstance(effect, Decide) for effect in effects) == 1
        assert gateway.budget.held == len(LONG)
        gateway.decided()
        assert gateway.budget.held == 0


@keeps("6-10")
def _not_collected() -> None:
    for response_mode in (STREAMED, DUPLEX):
        gateway, _ = at_body(BUFFERED, response_mode=response_mode)
        gateway.decided(Picked("h:1", "b"))
        gateway.response_headers()
        for _ in range(20):
            assert answers(gateway.response_body(LONG))
            assert gateway.budget.held == 0


@keeps("6-11")
def _as_it_came() -> None:
    gateway = picked(response_mode=DUPLEX)
    gateway.response_headers(headers={"content-type": "application/json"})
    (answer,) = answers(gateway.response_body(b'{"text":'))
    assert streamed(answer).body == b'{"text":'
    gateway.now += 1
    assert not asks(gateway.cancel())
    assert gateway.overs == [(PICKED.booking_id, End.HALF_CLOSED)]
    unread = picked(response_mode=STREAMED)
    unread.response_headers()
    (answer,) = answers(unread.response_body(b"\xff\x00"))
    assert not common_of(answer).HasField("body_mutation")
