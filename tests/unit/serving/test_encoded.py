"""Answers as bytes: to the byte what the protobuf runtime makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.serving import encoded, replies
from picker.serving.modes import BodyMode
from picker.serving.seam import Picked, Refused
from picker.serving.wire.extproc_pb2 import ProcessingResponse

ids = st.text(max_size=20) | st.text("\x7f", max_size=3)
picks = st.builds(
    Picked,
    destination=st.sampled_from(["10.0.0.1:8000", "10.0.0.1:8000,10.0.0.2:8000", "[::1]:1", "\x7f\x7f", ""]),
    booking_id=ids,
    set_headers=st.lists(st.tuples(st.sampled_from(["x-data-parallel-rank", "x-\x7f"]), ids), max_size=2).map(
        tuple
    ),
)
removed = st.lists(st.sampled_from(["x-picker-booking", "x-slo-ttft-ms"]), max_size=2, unique=True).map(tuple)
overrides = (
    st.none() | st.just((BodyMode.BUFFERED, BodyMode.STREAMED)) | st.just((BodyMode.NONE, BodyMode.NONE))
)


@given(picks, removed, overrides)
def test_a_decision_is_encoded_as_the_runtime_does_it(
    picked: Picked, remove: tuple[str, ...], override: tuple[BodyMode, BodyMode] | None
) -> None:
    for _ in range(2):  # the second one is remembered
        made = encoded.headers_decided(picked, remove, override)
        assert ProcessingResponse.FromString(made) == replies.headers_decided(picked, remove, override)
        at_body = encoded.body_decided(picked, remove)
        assert ProcessingResponse.FromString(at_body) == replies.body_decided(picked, remove)


def streamed(body: bytes, *, end: bool, response: bool) -> list[bytes]:
    """The same by the runtime: messages of at most `PIECE` bytes, the last one of which says whether the body ends."""
    made = []
    for at in range(0, max(len(body), int(end)), encoded.PIECE):
        message = ProcessingResponse()
        answer = message.response_body if response else message.request_body
        mutation = answer.response.body_mutation.streamed_response
        mutation.body = body[at : at + encoded.PIECE]
        mutation.end_of_stream = end and at + encoded.PIECE >= len(body)
        made.append(message.SerializeToString())
    return made


@given(
    st.binary(max_size=300) | st.sampled_from([127, 128, 16_383, 16_384]).map(bytes),
    st.booleans(),
    st.booleans(),
)
def test_a_piece_of_a_body_is_encoded_as_the_runtime_does_it(body: bytes, end: bool, response: bool) -> None:
    made = list(encoded.streamed(body, end=end, response=response))
    assert made == streamed(body, end=end, response=response)


@pytest.mark.parametrize(
    "size", [encoded.PIECE - 1, encoded.PIECE, encoded.PIECE + 1, 3 * encoded.PIECE, 2_200_000]
)
@pytest.mark.parametrize("end", [True, False])
def test_a_large_body_is_cut_as_before(size: int, end: bool) -> None:
    body = bytes(size)
    made = list(encoded.streamed(body, end=end, response=False))
    assert made == streamed(body, end=end, response=False)


def test_what_never_differs_is_encoded_as_the_runtime_does_it() -> None:
    assert encoded.headers_passed() == replies.headers_passed().SerializeToString()
    assert encoded.headers_passed(("x-a",)) == replies.headers_passed(("x-a",)).SerializeToString()
    assert replies.body_passed().SerializeToString() == encoded.BODY_PASSED
    assert replies.trailers_passed().SerializeToString() == encoded.TRAILERS_PASSED
    assert replies.response_headers_passed().SerializeToString() == encoded.RESPONSE_HEADERS_PASSED
    assert replies.response_body_passed().SerializeToString() == encoded.RESPONSE_BODY_PASSED
    assert replies.response_trailers_passed().SerializeToString() == encoded.RESPONSE_TRAILERS_PASSED
    refusal = Refused(429, "rate_limit_error", "full", "all full", retry_after=1)
    assert encoded.refused(refusal) == replies.refused(refusal).SerializeToString()


def test_a_changed_body_is_encoded_with_its_decision() -> None:
    picked = Picked("10.0.0.1:8000", "booking")
    made = encoded.body_decided(picked, (), body=b"{}", length=True)
    assert ProcessingResponse.FromString(made) == replies.body_decided(picked, (), body=b"{}", length=True)


def test_remembered_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: dict[object, tuple[bytes, bytes]] = {}
    monkeypatch.setattr(encoded, "_decided", decided)
    monkeypatch.setattr(encoded, "REMEMBERED", 8)
    for n in range(50):
        encoded.headers_decided(Picked(f"10.0.0.{n}:80", "booking"), ())
        assert len(decided) <= 8
    assert decided
