"""Whatever comes in whatever order: nothing raises, every pick is over exactly once, memory is given back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from picker.serving.buffers import Budget
from picker.serving.counts import Counts
from picker.serving.effects import Abandon, Close, Decide, Effect, Over, Send
from picker.serving.exchange import Exchange, Hold, Limits
from picker.serving.modes import BodyMode
from picker.serving.seam import End, Picked, Refused
from picker.serving.testing import header_map
from picker.serving.wire.extproc_pb2 import (
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ProcessingRequest,
)

NAMES = st.sampled_from(
    [
        ":path",
        ":status",
        "content-length",
        "content-type",
        "x-picker-booking",
        "x-gateway-destination-endpoint",
    ]
) | st.text(max_size=8)
VALUES = st.sampled_from(["200", "text/event-stream", "3", "99999999999999999999", "-1", ""]) | st.text(
    max_size=8
)
HEADERS = st.builds(
    lambda headers, end: HttpHeaders(headers=header_map(headers), end_of_stream=end),
    st.dictionaries(NAMES, VALUES, max_size=5),
    st.booleans(),
)
BODIES = st.builds(
    HttpBody,
    body=st.binary(max_size=40),
    end_of_stream=st.booleans(),
    end_of_stream_without_message=st.booleans(),
)


@st.composite
def messages(draw: st.DrawFn) -> ProcessingRequest:
    message = ProcessingRequest()
    match draw(st.sampled_from(["qh", "qb", "qt", "rh", "rb", "rt", "nothing"])):
        case "qh":
            message.request_headers.CopyFrom(draw(HEADERS))
        case "qb":
            message.request_body.CopyFrom(draw(BODIES))
        case "qt":
            message.request_trailers.CopyFrom(HttpTrailers())
        case "rh":
            message.response_headers.CopyFrom(draw(HEADERS))
        case "rb":
            message.response_body.CopyFrom(draw(BODIES))
        case "rt":
            message.response_trailers.CopyFrom(HttpTrailers())
    if draw(st.booleans()):
        message.protocol_config.request_body_mode = draw(st.integers(-2, 7))  # type: ignore[assignment]
        message.protocol_config.response_body_mode = draw(st.integers(-2, 7))  # type: ignore[assignment]
    message.observability_mode = draw(st.integers(0, 20)) == 0
    return message


EVENTS = st.lists(
    messages() | st.sampled_from(["picked", "refused", "wait", "wait long"]),
    max_size=30,
)
LAST = st.sampled_from(["half_closed", "cancelled", "broken", "drain"])


@settings(max_examples=600, deadline=None)
@given(EVENTS, LAST, st.sampled_from(["headers", "response"]), st.sampled_from(list(BodyMode)))
def test_any_sequence_is_survived_and_accounted_for(
    events: list[ProcessingRequest | str], last: str, hold: Hold, forced: BodyMode
) -> None:
    budget, counts = Budget(100), Counts()
    exchange = Exchange(Limits(80, 60, 600, forced), budget=budget, hold=lambda: hold, counts=counts, now=0.0)
    now, minted, overs, picking, closed = 0.0, 0, [], False, False

    def note(effects: list[Effect]) -> None:
        nonlocal picking, closed
        for effect in effects:
            assert not closed or isinstance(effect, Over), "nothing follows a close but late picks"
            picking = isinstance(effect, Decide) or (picking and not isinstance(effect, Abandon))
            if isinstance(effect, Over):
                overs.append(effect.booking_id)
        assert sum(isinstance(effect, Send) for effect in effects) <= 4 + 30
        closed = closed or Close() in effects
        assert exchange.over == closed
        exchange.performed()
        assert 0 <= budget.held <= 100
        assert exchange.deadline is None or exchange.deadline <= now + 600

    for event in events:
        if isinstance(event, ProcessingRequest):
            note(exchange.receive(event, now))
        elif event.startswith("wait"):
            now += 0.05 if event == "wait" else 700.0
            note(exchange.expired(now))
        elif picking:
            picking = False
            answer = Picked("h:1", f"b{minted}") if event == "picked" else Refused(429, "t", "c", "m")
            minted += isinstance(answer, Picked)
            note(exchange.decided(answer, now))
    note(exchange.drain(now) if last == "drain" else getattr(exchange, last)(now))
    assert exchange.over
    assert exchange.deadline is None
    assert budget.held == 0
    assert sorted(overs) == sorted(f"b{number}" for number in range(minted))
    assert exchange.decided(Picked("h:1", "late"), now) == [Over("late", End.PROVEN)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=30_000), max_size=12), st.booleans())
def test_any_cut_of_a_full_duplex_body_comes_back_unchanged(pieces: list[bytes], trailers: bool) -> None:
    exchange = Exchange(
        Limits(1 << 20, 60, 600), budget=Budget(1 << 20), hold=lambda: "response", counts=Counts(), now=0.0
    )
    first = ProcessingRequest(request_headers=HttpHeaders())
    first.protocol_config.request_body_mode = BodyMode.FULL_DUPLEX_STREAMED  # type: ignore[assignment]
    effects = exchange.receive(first, 0.0)
    for piece in pieces:
        effects += exchange.receive(ProcessingRequest(request_body=HttpBody(body=piece)), 0.0)
    last = ProcessingRequest(request_trailers=HttpTrailers())
    if not trailers:
        last = ProcessingRequest(request_body=HttpBody(end_of_stream=True))
    effects += exchange.receive(last, 0.0)
    effects += exchange.decided(Picked("h:1", "b"), 0.0)
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    streamed = [
        message.request_body.response.body_mutation.streamed_response
        for message in sent
        if message.HasField("request_body")
    ]
    assert b"".join(piece.body for piece in streamed) == b"".join(pieces)
    assert sum(piece.end_of_stream for piece in streamed) == (0 if trailers else 1)
    assert all(len(piece.body) <= 62_000 for piece in streamed)
