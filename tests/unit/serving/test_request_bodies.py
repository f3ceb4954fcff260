"""Another body than the client's: where it goes, with which length, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from picker.serving.effects import Close, Decide, Over
from picker.serving.gateway import POST, common_of, headers_set, request_trailers
from picker.serving.modes import BodyMode
from picker.serving.seam import End, HttpRequest, Picked
from picker.serving.testing import Gateway, answers

SIZES = [0, 1, 5, 62_000, 62_001, 200_000]
OLD = b"12345"
DUPLEX = BodyMode.FULL_DUPLEX_STREAMED


def asked(effects: Sequence[object]) -> HttpRequest:
    (decide,) = [effect for effect in effects if isinstance(effect, Decide)]
    return decide.request


def picked(body: bytes | None) -> Picked:
    return Picked("10.0.0.1:8000", "booking-1", body=body)


def with_length(body: bytes = OLD) -> dict[str, str]:
    return {**POST, "content-length": str(len(body))}


@pytest.mark.parametrize("size", SIZES)
def test_a_buffered_body_is_replaced_with_its_length_said_in_the_same_answer(size: int) -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED)
    gateway.request_headers(with_length())
    assert asked(gateway.request_body(OLD)).rewritable
    (answer,) = answers(gateway.decided(picked(b"y" * size)))
    assert common_of(answer).body_mutation.WhichOneof("mutation") == "body"
    assert common_of(answer).body_mutation.body == b"y" * size
    assert headers_set(answer)["content-length"] == str(size)
    assert gateway.counts.bodies_rewritten == 1
    assert gateway.budget.held == 0


def test_a_buffered_body_without_a_declared_length_is_replaced_without_one() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED)
    gateway.request_headers()
    gateway.request_body(OLD)
    (answer,) = answers(gateway.decided(picked(b"other")))
    assert common_of(answer).body_mutation.body == b"other"
    assert "content-length" not in headers_set(answer)


def test_a_whole_partial_body_is_replaced_and_its_length_left_to_the_gateway_that_drops_it() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED_PARTIAL)
    gateway.request_headers(with_length())
    assert asked(gateway.request_body(OLD)).rewritable
    (answer,) = answers(gateway.decided(picked(b"longer than before")))
    assert common_of(answer).body_mutation.body == b"longer than before"
    assert "content-length" not in headers_set(answer)


def test_a_cut_body_is_never_replaced() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED_PARTIAL)
    gateway.request_headers({**POST, "content-length": "9000"})
    request = asked(gateway.request_body(OLD, end=False))
    assert (request.complete, request.rewritable) == (False, False)
    (answer,) = answers(gateway.decided(picked(b"other")))
    assert not common_of(answer).HasField("body_mutation")
    assert (gateway.counts.bodies_cut, gateway.counts.rewrites_ignored) == (1, 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("trailers", [False, True])
def test_a_full_duplex_body_is_replaced_in_pieces_with_one_end(size: int, trailers: bool) -> None:
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers(with_length())
    gateway.request_body(OLD[:2], end=False)
    effects = gateway.request_body(OLD[2:], end=not trailers)
    if trailers:
        effects = gateway.send(request_trailers())
    assert asked(effects).rewritable
    _, *rest = answers(gateway.decided(picked(b"y" * size)))
    if trailers:
        assert rest.pop().WhichOneof("response") == "request_trailers"
    streamed = [common_of(piece).body_mutation.streamed_response for piece in rest]
    assert b"".join(piece.body for piece in streamed) == b"y" * size
    assert all(len(piece.body) <= 62_000 for piece in streamed)
    assert sum(piece.end_of_stream for piece in streamed) == (0 if trailers else 1)
    assert gateway.budget.held == 0


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED])
def test_a_body_that_is_not_waited_for_is_not_replaced(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    assert not asked(gateway.request_headers()).rewritable
    (answer,) = answers(gateway.decided(picked(b"other")))
    assert answer.WhichOneof("response") == "request_headers"
    assert gateway.counts.rewrites_ignored == 1


@pytest.mark.parametrize("mode", list(BodyMode))
def test_a_request_without_a_body_gets_none(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    assert not asked(gateway.request_headers(end=True)).rewritable
    (answer,) = answers(gateway.decided(picked(b"other")))
    assert not common_of(answer).HasField("body_mutation")


@pytest.mark.parametrize("mode", [BodyMode.BUFFERED, DUPLEX])
def test_a_body_that_grows_past_the_memory_of_all_streams_is_refused_and_its_booking_is_over(
    mode: BodyMode,
) -> None:
    gateway = Gateway(mode=mode, budget=100)
    gateway.request_headers()
    gateway.request_body(b"x" * 60)
    assert gateway.budget.held == 60
    effects = gateway.decided(picked(b"y" * 101))
    assert effects[0] == Over("booking-1", End.PROVEN)
    assert answers(effects)[0].immediate_response.status.code == 429
    assert effects[-1] == Close()
    assert gateway.overs == [("booking-1", End.PROVEN)]
    assert gateway.counts.decided == 0
    assert gateway.budget.held == 0


def test_a_new_body_is_paid_until_it_is_sent() -> None:
    gateway = Gateway(mode=DUPLEX, budget=100)
    gateway.request_headers()
    gateway.request_body(b"x" * 60)
    gateway.exchange.decided(picked(b"y" * 90), gateway.now)
    assert gateway.budget.held == 90
    gateway.exchange.performed()
    assert gateway.budget.held == 0


# -- bodies sent ahead of the answer to the headers -----------------------------------------------------------------


def ahead(**more: object) -> Gateway:
    return Gateway(mode=BodyMode.STREAMED, ahead=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("trailers", [False, True])
def test_a_streamed_body_sent_ahead_is_read_before_the_decision_and_answered_after_it(trailers: bool) -> None:
    gateway = ahead()
    assert gateway.request_headers() == []
    assert gateway.request_body(b"{", end=False) == []
    effects = gateway.request_body(b"}", end=not trailers)
    if trailers:
        effects = gateway.send(request_trailers())
    request = asked(effects)
    assert (request.body, request.complete, request.rewritable) == (b"{}", True, False)
    kinds = [answer.WhichOneof("response") for answer in answers(gateway.decided())]
    assert kinds == ["request_headers", "request_body", "request_body", *["request_trailers"] * trailers]
    assert gateway.budget.held == 0


def test_a_body_sent_ahead_that_is_slow_is_not_waited_for() -> None:
    gateway = ahead()
    gateway.request_headers()
    gateway.request_body(b"{", end=False)
    request = asked(gateway.wait(0.1))
    assert (request.body, request.complete) == (b"{", False)
    assert len(answers(gateway.decided())) == 2
    assert len(answers(gateway.request_body(b"}"))) == 1
    assert gateway.counts.bodies_ahead == 1


def test_a_gateway_that_sends_ahead_but_no_body_comes_is_answered_without_it() -> None:
    gateway = ahead()
    gateway.request_headers()
    request = asked(gateway.wait(0.1))
    assert (request.body, request.complete) == (None, False)


@pytest.mark.parametrize("budget", [1 << 30, 100])
def test_a_body_sent_ahead_that_is_too_large_to_be_kept_is_decided_without_it(budget: int) -> None:
    gateway = ahead(budget=budget)
    gateway.request_headers({**POST, "content-length": str(3 << 20)})
    effects = [gateway.request_body(b"x" * 200_000, end=False) for _ in range(6)]
    (request,) = [asked(each) for each in effects if each]
    assert (request.body, request.complete) == (None, False)
    assert gateway.budget.held == 0
    assert len(answers(gateway.decided())) == 1 + 6


@pytest.mark.parametrize("mode", [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL, DUPLEX])
def test_sending_ahead_changes_nothing_where_the_body_is_held_back_for_us(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode, ahead=True)
    assert len(gateway.request_headers()) == (0 if mode is DUPLEX else 1)
    assert asked(gateway.request_body(b"{}")).rewritable
    assert answers(gateway.decided())
