"""The response's side of one stream, and the ways a stream ends."""

from __future__ import annotations

import pytest

from picker.serving.effects import Abandon, BodySeen, Close, Decide, Over, ResponseSeen
from picker.serving.exchange import AT_ONCE_SECONDS
from picker.serving.gateway import common_of, response_headers, response_trailers
from picker.serving.modes import BodyMode
from picker.serving.reading import BALANCER_NAMESPACE, SERVED_KEY
from picker.serving.seam import End, Responded
from picker.serving.testing import PICKED, Gateway, answers

BOOKING = PICKED.booking_id
RESPONSE_MODES = [mode for mode in BodyMode if mode is not BodyMode.UNTOLD]
SSE = {"content-type": "text/event-stream; charset=utf-8"}


def picked(response_mode: BodyMode = BodyMode.NONE, *, hold: str = "response") -> Gateway:
    gateway = Gateway(mode=BodyMode.BUFFERED, response_mode=response_mode, hold=hold)  # type: ignore[arg-type]
    gateway.up_to_pick()
    return gateway


@pytest.mark.parametrize("response_mode", RESPONSE_MODES)
def test_response_headers_are_answered_with_nothing_at_once(response_mode: BodyMode) -> None:
    gateway = picked(response_mode)
    (answer,) = answers(gateway.response_headers())
    assert answer.WhichOneof("response") == "response_headers"
    assert not common_of(answer).HasField("header_mutation")


def test_response_attributes_tell_who_served_and_after_how_many_tries() -> None:
    gateway = picked()
    effects = gateway.response_headers(
        201,
        headers=SSE,
        attributes={"upstream.address": "10.0.0.2:8000", "upstream.request_attempt_count": 2},
    )
    assert effects[0] == ResponseSeen(
        BOOKING, Responded(201, "10.0.0.2:8000", 2, True, "text/event-stream; charset=utf-8")
    )


def test_served_metadata_wins_over_the_address_of_the_connection() -> None:
    gateway = picked()
    message = response_headers(attributes={"upstream.address": "127.0.0.1:1"})
    message.metadata_context.filter_metadata[BALANCER_NAMESPACE].update({SERVED_KEY: "10.0.0.2:8000"})
    assert gateway.send(message)[0] == ResponseSeen(BOOKING, Responded(200, "10.0.0.2:8000", 1, False))


def test_nonsense_in_attributes_and_status_is_read_as_unknown() -> None:
    gateway = picked()
    effects = gateway.send(
        response_headers(
            headers={":status": "-1"},
            attributes={"upstream.address": "x" * 10_000, "upstream.request_attempt_count": "many"},
        )
    )
    assert effects[0] == ResponseSeen(BOOKING, Responded(0))


@pytest.mark.parametrize("response_mode", [BodyMode.STREAMED, BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL])
def test_each_piece_of_a_response_gets_exactly_one_empty_answer(response_mode: BodyMode) -> None:
    gateway = picked(response_mode)
    gateway.response_headers()
    for end in (False, False, True):
        (answer,) = answers(gateway.response_body(b"x" * 100_000, end=end))
        assert answer.WhichOneof("response") == "response_body"
        assert not common_of(answer).HasField("body_mutation")


def test_a_full_duplex_response_comes_back_byte_for_byte() -> None:
    gateway = picked(BodyMode.FULL_DUPLEX_STREAMED)
    gateway.response_headers()
    pieces = answers(gateway.response_body(b"x" * 100_000)) + answers(gateway.response_body(b"", end=True))
    streamed = [common_of(piece).body_mutation.streamed_response for piece in pieces]
    assert [len(piece.body) for piece in streamed] == [62_000, 38_000, 0]
    assert [piece.end_of_stream for piece in streamed] == [False, False, True]


def test_the_first_piece_with_bytes_in_it_is_told_once() -> None:
    gateway = picked(BodyMode.STREAMED)
    gateway.response_headers()
    seen = [BodySeen(BOOKING) in gateway.response_body(body) for body in (b"", b"a", b"b")]
    assert seen == [False, True, False]


@pytest.mark.parametrize("response_mode", RESPONSE_MODES)
def test_the_end_of_the_response_proves_the_end_once(response_mode: BodyMode) -> None:
    gateway = picked(response_mode)
    gateway.response_headers()
    if response_mode is BodyMode.NONE:
        gateway.send(response_trailers())
    else:
        gateway.response_body(b"x", end=True)
    assert gateway.overs == [(BOOKING, End.PROVEN)]
    gateway.half_close()
    gateway.cancel()
    assert gateway.overs == [(BOOKING, End.PROVEN)]


def test_response_headers_that_end_the_response_prove_the_end() -> None:
    gateway = picked()
    gateway.response_headers(204, end=True)
    assert gateway.overs == [(BOOKING, End.PROVEN)]


@pytest.mark.parametrize(
    ("flags", "reached"), [(0x2, False), (0x20, False), (0x10, True), (0x40, True), (0, True)]
)
def test_a_gateway_that_reached_no_worker_proves_the_end(flags: int, reached: bool) -> None:
    gateway = picked()
    gateway.response_headers(503, attributes={"response.flags": flags})
    gateway.cancel()
    assert gateway.overs == [(BOOKING, End.HALF_CLOSED if reached else End.PROVEN)]


def test_a_worker_tried_before_the_one_that_was_not_reached_may_still_work() -> None:
    gateway = picked()
    gateway.response_headers(503, attributes={"response.flags": 0x20, "upstream.request_attempt_count": 2})
    gateway.cancel()
    assert gateway.overs == [(BOOKING, End.HALF_CLOSED)]


@pytest.mark.parametrize("response_mode", [BodyMode.NONE, BodyMode.STREAMED])
def test_hold_headers_closes_with_ok_right_after_response_headers(response_mode: BodyMode) -> None:
    gateway = picked(response_mode, hold="headers")
    effects = gateway.response_headers()
    assert len(answers(effects)) == 1
    assert effects[-2:] == [Over(BOOKING, End.CLOSED_BY_US), Close()]


@pytest.mark.parametrize(
    "response_mode", [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL, BodyMode.FULL_DUPLEX_STREAMED]
)
def test_hold_headers_is_not_used_where_the_response_needs_us(response_mode: BodyMode) -> None:
    gateway = picked(response_mode, hold="headers")
    assert Close() not in gateway.response_headers()


def test_hold_headers_is_not_used_where_the_gateway_names_no_response_mode() -> None:
    gateway = Gateway(hold="headers")
    gateway.request_headers(end=True)
    gateway.decided()
    assert Close() not in gateway.response_headers()


@pytest.mark.parametrize("how", ["half_close", "cancel"])
def test_a_gateway_that_lets_go_after_response_headers_ends_the_booking(how: str) -> None:
    gateway = picked()
    gateway.response_headers()
    assert getattr(gateway, how)() == [Over(BOOKING, End.HALF_CLOSED), Close()]


def test_a_stream_that_is_lost_after_response_headers_ends_nothing() -> None:
    gateway = picked()
    gateway.response_headers()
    assert gateway.exchange.broken(gateway.now) == [Over(BOOKING, End.CANCELLED), Close()]


def test_a_half_close_right_after_the_headers_of_an_event_stream_is_no_end() -> None:
    early, late, plain = picked(), picked(), picked()
    early.response_headers(headers=SSE)
    late.response_headers(headers=SSE)
    plain.response_headers(headers={"content-type": "application/json"})
    late.now += AT_ONCE_SECONDS
    for gateway in (early, late, plain):
        gateway.half_close()
    assert [gateway.overs[0][1] for gateway in (early, late, plain)] == [
        End.CANCELLED,
        End.HALF_CLOSED,
        End.HALF_CLOSED,
    ]


def test_a_stream_that_ends_before_response_headers_is_broken_however_it_ends() -> None:
    half_closed, cancelled = picked(), picked()
    half_closed.half_close()
    cancelled.cancel()
    assert half_closed.overs == cancelled.overs == [(BOOKING, End.CANCELLED)]


@pytest.mark.parametrize("how", ["half_close", "cancel"])
def test_a_client_that_leaves_while_its_pick_waits_leaves_nothing(how: str) -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED)
    gateway.request_headers()
    gateway.request_body(b"{}")
    assert getattr(gateway, how)() == [Abandon(), Close()]
    assert gateway.decided() == [Over(BOOKING, End.PROVEN)]
    assert gateway.budget.held == 0


@pytest.mark.parametrize("upto", ["headers", "pick"])
def test_an_answer_of_the_gateway_itself_books_nothing(upto: str) -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED)
    effects = gateway.request_headers()
    if upto == "pick":
        effects += gateway.request_body(b"{}")
    effects += gateway.response_headers(413, end=False)
    assert (Abandon() in effects) == (upto == "pick")
    assert answers(effects)[-1].WhichOneof("response") == "response_headers"
    gateway.decided()
    gateway.cancel()
    assert [end for _, end in gateway.overs] == [End.PROVEN]
    assert gateway.counts.local_replies == 1


def test_a_response_without_any_request_passes() -> None:
    gateway = Gateway()
    assert len(answers(gateway.response_headers())) == 1
    assert not any(isinstance(effect, Decide) for effect in gateway.response_body(b"x"))


def test_a_held_stream_without_messages_is_closed_with_ok_in_the_end() -> None:
    gateway = picked()
    gateway.response_headers()
    assert gateway.wait(599) == []
    assert gateway.wait(1) == [Over(BOOKING, End.CLOSED_BY_US), Close()]


def test_messages_keep_a_held_stream_open() -> None:
    gateway = picked(BodyMode.STREAMED)
    gateway.response_headers()
    gateway.wait(599)
    gateway.response_body(b"x")
    assert gateway.wait(599) == []


def test_a_drain_closes_a_running_response_with_ok() -> None:
    gateway = picked()
    gateway.response_headers()
    assert gateway.drain() == [Over(BOOKING, End.DRAINED), Close()]


@pytest.mark.parametrize("deciding", [False, True])
def test_a_drain_refuses_what_has_no_worker_yet(deciding: bool) -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    gateway.request_headers()
    gateway.request_body(b"{}", end=deciding)
    immediate = answers(gateway.drain())[0].immediate_response
    assert immediate.status.code == 503
    assert immediate.details == "picker_shutting_down"


def test_a_stream_that_floods_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picker.serving.exchange.MAX_MESSAGES", 10)
    gateway = picked(BodyMode.STREAMED)
    gateway.response_headers()
    effects = [gateway.response_body(b"x") for _ in range(8)]
    assert effects[-1] == [Over(BOOKING, End.CLOSED_BY_US), Close()]
    assert gateway.response_body(b"x") == []
