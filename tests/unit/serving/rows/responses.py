"""Rows of chapters 2.3 and 2.4: the response's direction, and how a stream ends."""

from __future__ import annotations

from picker.serving.effects import Abandon, Close, Over, ResponseSeen
from picker.serving.exchange import Limits
from picker.serving.gateway import common_of, headers_set
from picker.serving.seam import (
    BOOKING_HEADER,
    DESTINATION_HEADER,
    End,
    Picked,
)
from picker.serving.testing import LIMITS, PICKED, Gateway, answers
from tests.unit.picking.world import World
from tests.unit.serving.rows.shared import (
    BODY,
    BUFFERED,
    DUPLEX,
    LONG,
    MODES,
    NONE,
    PARTIAL,
    STREAMED,
    all_said,
    at_body,
    changes_nothing,
    keeps,
    kinds,
    picked,
    product,
    streamed,
)


@keeps("2.3-1")
def _unshown() -> None:
    gateway = picked()
    assert answers(gateway.cancel()) == []
    assert gateway.overs == [(PICKED.booking_id, End.CANCELLED)]  # it drains, until a log names it


@keeps("2.3-2")
def _headers_only() -> None:
    (answer,) = answers(picked().response_headers())
    assert changes_nothing(answer)


@keeps("2.3-3")
def _each_piece() -> None:
    for response_mode in (STREAMED, BUFFERED, PARTIAL):
        gateway = picked(response_mode=response_mode)
        gateway.response_headers()
        for end in (False, True):
            (answer,) = answers(gateway.response_body(LONG, end=end))
            assert changes_nothing(answer)


class Shouting:
    """A reading that changes what it sees."""

    rewrites = True

    def begin(self, response: object) -> None: ...

    def piece(self, data: bytes, *, end: bool) -> bytes | None:
        return data.upper()


@keeps("2.3-4")
def _replaced() -> None:
    for response_mode in (STREAMED, BUFFERED):
        gateway, _ = at_body(BUFFERED, response_mode=response_mode)
        gateway.decided(Picked("h:1", "b", reading=Shouting()))
        gateway.response_headers()
        (answer,) = answers(gateway.response_body(b"abc", end=True))
        assert common_of(answer).body_mutation.WhichOneof("mutation") == "body"
        assert common_of(answer).body_mutation.body == b"ABC"


@keeps("2.3-5")
def _all_back() -> None:
    gateway = picked(response_mode=DUPLEX)
    assert kinds(gateway.response_headers()) == ["response_headers"]
    said = answers(gateway.response_body(LONG)) + answers(gateway.response_body(b"", end=True))
    pieces = [streamed(answer) for answer in said]
    assert b"".join(piece.body for piece in pieces) == LONG
    assert [piece.end_of_stream for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert max(len(piece.body) for piece in pieces) <= 62_000


@keeps("2.3-6")
def _as_they_come() -> None:
    for response_mode in (STREAMED, DUPLEX):
        gateway = picked(response_mode=response_mode)
        gateway.response_headers(headers={"content-type": "text/event-stream"})
        for number in range(3):
            assert len(answers(gateway.response_body(b"data: %d\n\n" % number))) == 1
        assert gateway.budget.held == 0


@keeps("2.3-7")
def _mode_override() -> None:
    allowed = Limits(1 << 20, 60, 600, mode_override=True)
    for mode in MODES:
        for response_mode in MODES:
            for limits in (LIMITS, allowed):
                gateway = Gateway(mode=mode, response_mode=response_mode, limits=limits)
                said = all_said(gateway, mode, response_mode, PICKED)
                asking = [answer for answer in said if answer.HasField("mode_override")]
                assert all(answer.HasField("request_headers") for answer in asking)
                if limits is LIMITS or DUPLEX in (mode, response_mode):
                    assert asking == []


@keeps("2.3-8")
def _empty_end() -> None:
    for response_mode in (STREAMED, DUPLEX):
        gateway = picked(response_mode=response_mode)
        gateway.response_headers()
        gateway.response_body(b"x")
        assert len(answers(gateway.response_body(b"", end=True))) == 1
        assert gateway.overs == [(PICKED.booking_id, End.PROVEN)]


@keeps("2.4-1")
def _once() -> None:
    for mode in MODES:
        for response_mode in MODES:
            for last in ("half_close", "cancel", "drain"):
                gateway = picked(mode, response_mode)
                gateway.response_headers()
                if response_mode is not NONE:
                    gateway.response_body(b"x", end=True)
                getattr(gateway, last)()
                gateway.cancel()
                gateway.exchange.broken(gateway.now)
                assert [booking for booking, _ in gateway.overs] == [PICKED.booking_id]


@keeps("2.4-2")
def _broken() -> None:
    gateway = picked()
    gateway.response_headers()
    assert gateway.exchange.broken(gateway.now) == [Over(PICKED.booking_id, End.CANCELLED), Close()]


@keeps("2.4-3")
def _unreached() -> None:
    gateway = picked()
    gateway.response_headers(503, attributes={"response.flags": 0x20})
    gateway.cancel()
    assert gateway.overs == [(PICKED.booking_id, End.PROVEN)]


@keeps("2.4-4")
def _left_waiting() -> None:
    for mode in MODES:
        gateway, _ = at_body(mode)
        assert Abandon() in gateway.cancel()
        gateway.decided()
        assert gateway.overs == [(PICKED.booking_id, End.PROVEN)]


@keeps("2.4-5")
async def _follows() -> None:
    world = World(fallbacks=1)
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers()
    (answer, _) = await product(gateway, gateway.request_body(BODY), world)
    _first, second = headers_set(answer)[DESTINATION_HEADER].split(",")
    booking = headers_set(answer)[BOOKING_HEADER]
    effects = gateway.response_headers(
        attributes={"upstream.address": second, "upstream.request_attempt_count": 2}
    )
    (seen,) = [effect for effect in effects if isinstance(effect, ResponseSeen)]
    world.picking.responded(booking, seen.response)
    standing = world.desk.view.booking(booking)
    assert standing is not None
    assert standing.worker == second
    world.close()
