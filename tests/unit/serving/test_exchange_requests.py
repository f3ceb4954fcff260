"""The request's side of one stream: which message gets which answer, and where the decision goes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from picker.serving.effects import Abandon, Close, Decide, Effect
from picker.serving.exchange import AT_ONCE_SECONDS, GUESS_SECONDS, Limits
from picker.serving.gateway import POST, common_of, headers_set, request_headers, request_trailers
from picker.serving.modes import BodyMode
from picker.serving.reading import SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.refusals import STREAMS_FULL
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER, End, HttpRequest, Picked, Refused
from picker.serving.testing import LIMITS, PICKED, Gateway, answers
from picker.serving.wire.extproc_pb2 import (
    HeaderMap,
    HeaderValue,
    HttpHeaders,
    ProcessingRequest,
    ProcessingResponse,
)

MODES = [mode for mode in BodyMode if mode is not BodyMode.UNTOLD]
NOT_COLLECTED = [BodyMode.NONE, BodyMode.STREAMED]
WHOLE = [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL]
FORGED = {
    DESTINATION_HEADER: "6.6.6.6:1",
    BOOKING_HEADER: "forged",
    "x-gateway-destination-endpoint-served": "6.6.6.6:1",
    SUBSET_KEY: "6.6.6.6:1",
    "x-data-parallel-rank": "7",
    "x-prefiller-host-port": "6.6.6.6:1",
    "x-llm-d-inference-objective": "vip",
    "x-gateway-model-name-rewrite": "other",
}


def asked(effects: Sequence[object]) -> HttpRequest:
    (decide,) = [effect for effect in effects if isinstance(effect, Decide)]
    return decide.request


def kinds(effects: list[Effect]) -> list[str | None]:
    return [answer.WhichOneof("response") for answer in answers(effects)]


def assert_decision(response: ProcessingResponse, picked: Picked = PICKED) -> None:
    common = common_of(response)
    written = headers_set(response)
    assert written[DESTINATION_HEADER] == picked.destination
    assert written[BOOKING_HEADER] == picked.booking_id
    assert common.clear_route_cache
    fields = response.dynamic_metadata.fields
    assert fields["envoy.lb"].struct_value.fields[DESTINATION_HEADER].string_value == picked.destination


@pytest.mark.parametrize("mode", WHOLE)
def test_a_buffered_body_waits_for_an_empty_headers_answer_and_is_answered_with_the_decision(
    mode: BodyMode,
) -> None:
    gateway = Gateway(mode=mode)
    (empty,) = answers(gateway.request_headers())
    assert empty.WhichOneof("response") == "request_headers"
    assert not headers_set(empty)
    assert not common_of(empty).clear_route_cache
    assert not empty.HasField("dynamic_metadata")
    request = asked(gateway.request_body(b'{"a":1}'))
    assert (request.body, request.complete, request.headers[":path"]) == (b'{"a":1}', True, "/v1/completions")
    (decision,) = answers(gateway.decided())
    assert decision.WhichOneof("response") == "request_body"
    assert_decision(decision)
    assert not common_of(decision).HasField("body_mutation")


def test_a_cut_body_is_said_to_be_cut() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED_PARTIAL)
    gateway.request_headers({**POST, "content-length": "9000"})
    assert not asked(gateway.request_body(b"{", end=False)).complete


def test_a_partial_mode_body_that_is_all_there_is_complete_though_trailers_follow() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED_PARTIAL)
    gateway.request_headers({**POST, "content-length": "2"})
    assert asked(gateway.request_body(b"{}", end=False)).complete


def test_a_buffered_body_is_decided_though_trailers_follow_it() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED)
    gateway.request_headers()
    assert asked(gateway.request_body(b"{}", end=False)).complete
    assert kinds(gateway.decided()) == ["request_body"]
    assert kinds(gateway.send(request_trailers())) == ["request_trailers"]


def test_full_duplex_answers_nothing_before_the_end_of_the_body() -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    assert gateway.request_headers() == []
    assert gateway.request_body(b"", end=False) == []
    assert gateway.request_body(b"{", end=False) == []
    assert asked(gateway.request_body(b"}")).body == b"{}"


def test_full_duplex_answers_headers_with_the_decision_then_gives_the_body_back() -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    gateway.request_headers()
    gateway.request_body(b"{", end=False)
    gateway.request_body(b"}")
    headers, body = answers(gateway.decided())
    assert headers.WhichOneof("response") == "request_headers"
    assert_decision(headers)
    streamed = common_of(body).body_mutation.streamed_response
    assert (streamed.body, streamed.end_of_stream) == (b"{}", True)


@pytest.mark.parametrize("size", [0, 1, 62_000, 62_001, 200_000, 124_000])
def test_full_duplex_gives_every_byte_back_in_pieces_of_at_most_62000_with_one_end(size: int) -> None:
    body = bytes(index % 251 for index in range(size))
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    gateway.request_headers()
    gateway.request_body(body)
    _, *pieces = answers(gateway.decided())
    streamed = [common_of(piece).body_mutation.streamed_response for piece in pieces]
    assert b"".join(piece.body for piece in streamed) == body
    assert all(len(piece.body) <= 62_000 for piece in streamed)
    assert [piece.end_of_stream for piece in streamed] == [False] * (len(streamed) - 1) + [True]
    assert len(streamed) == max(1, -(-size // 62_000))


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_trailers_end_a_full_duplex_body_in_place_of_an_end_of_stream(body: bytes) -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    gateway.request_headers()
    gateway.request_body(body, end=False)
    assert asked(gateway.send(request_trailers())).body == body
    effects = gateway.decided()
    assert kinds(effects) == ["request_headers", *["request_body"] * bool(body), "request_trailers"]
    for answer in answers(effects)[1:-1]:
        assert not common_of(answer).body_mutation.streamed_response.end_of_stream


@pytest.mark.parametrize("mode", list(BodyMode))
def test_a_request_without_a_body_is_decided_on_its_headers_in_every_mode(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    request = asked(gateway.request_headers({":method": "GET", ":path": "/v1/models"}, end=True))
    assert request.body is None
    (decision,) = answers(gateway.decided())
    assert decision.WhichOneof("response") == "request_headers"
    assert_decision(decision)


@pytest.mark.parametrize("mode", NOT_COLLECTED)
def test_a_body_that_is_not_shown_in_time_is_not_waited_for(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    assert asked(gateway.request_headers()).body is None
    (decision,) = answers(gateway.decided())
    assert_decision(decision)


def test_each_piece_of_a_streamed_body_gets_one_empty_answer() -> None:
    gateway = Gateway(mode=BodyMode.STREAMED)
    gateway.up_to_pick()
    for end in (False, False, True):
        (answer,) = answers(gateway.request_body(b"x" * 100_000, end=end))
        assert answer.WhichOneof("response") == "request_body"
        assert not common_of(answer).HasField("body_mutation")


def test_pieces_sent_ahead_of_the_decision_are_answered_after_it() -> None:
    gateway = Gateway(mode=BodyMode.STREAMED)
    gateway.request_headers()
    assert gateway.request_body(b"x", end=False) == []
    assert gateway.request_body(b"y") == []
    assert kinds(gateway.decided()) == ["request_headers", "request_body", "request_body"]
    assert gateway.budget.held == 0


def test_pieces_sent_ahead_of_the_decision_cost_no_memory_and_are_bounded_in_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("picker.serving.request_side.MAX_PIECES", 50)
    gateway = Gateway(mode=BodyMode.STREAMED)
    gateway.request_headers()
    for _ in range(50):
        assert gateway.request_body(b"x" * 100_000, end=False) == []
        assert gateway.budget.held == 0
    effects = gateway.request_body(b"x", end=False)
    assert effects[0] == Abandon()
    assert answers(effects)[0].immediate_response.status.code == 413


# -- a gateway that names no mode -------------------------------------------------------------------------------


def test_without_a_named_mode_a_body_sent_unasked_means_full_duplex() -> None:
    gateway = Gateway()
    assert gateway.request_headers() == []
    gateway.request_body(b"{", end=False)
    asked(gateway.request_body(b"}"))
    headers, body = answers(gateway.decided())
    assert_decision(headers)
    assert common_of(body).body_mutation.streamed_response.end_of_stream


def test_without_a_named_mode_and_without_a_body_the_headers_are_answered_before_the_gateway_gives_up() -> (
    None
):
    gateway = Gateway()
    gateway.request_headers()
    assert gateway.wait(GUESS_SECONDS / 2) == []
    assert asked(gateway.wait(GUESS_SECONDS)).body is None
    (decision,) = answers(gateway.decided())
    assert_decision(decision)
    assert gateway.counts.modes_guessed == 1
    assert GUESS_SECONDS < 0.2


def test_after_a_guess_a_buffered_body_passes_with_one_empty_answer() -> None:
    gateway = Gateway()
    gateway.request_headers()
    gateway.wait(GUESS_SECONDS)
    gateway.decided()
    (answer,) = answers(gateway.request_body(b'{"whole":1}'))
    assert not common_of(answer).HasField("body_mutation")


def test_after_a_guess_a_slow_full_duplex_body_is_given_back() -> None:
    gateway = Gateway()
    gateway.request_headers()
    gateway.wait(GUESS_SECONDS)
    gateway.decided()
    assert gateway.request_body(b"", end=False) == []
    (first,) = answers(gateway.request_body(b"{", end=False))
    (second,) = answers(gateway.request_body(b"}"))
    assert common_of(first).body_mutation.streamed_response.body == b"{"
    assert common_of(second).body_mutation.streamed_response.end_of_stream


def test_a_setting_overrides_the_mode_that_the_gateway_names() -> None:
    gateway = Gateway(mode=BodyMode.NONE, limits=Limits(1 << 20, 60, 600, mode=BodyMode.BUFFERED))
    assert kinds(gateway.request_headers()) == ["request_headers"]
    asked(gateway.request_body(b"{}"))


@pytest.mark.parametrize("direction", ["request_body_mode", "response_body_mode"])
@pytest.mark.parametrize("number", [5, 6, 99, -1])
def test_a_mode_that_is_not_served_is_refused_on_the_first_message(direction: str, number: int) -> None:
    gateway = Gateway()
    message = request_headers(mode=BodyMode.BUFFERED)
    setattr(message.protocol_config, direction, number)
    effects = gateway.send(message)
    immediate = answers(effects)[0].immediate_response
    assert immediate.status.code == 500
    assert f"mode {number}" in json.loads(immediate.body)["error"]["message"]
    assert effects[-1] == Close()
    assert gateway.counts.refused_mode == 1


# -- what clients may not say -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", [False, True])
def test_control_headers_of_a_client_never_pass(mode: BodyMode, end: bool) -> None:
    gateway = Gateway(mode=mode)
    effects = gateway.request_headers({**POST, **FORGED, "x-mine": "stays"}, end=end)
    if mode.collects and not end:
        effects += gateway.request_body(b"{}")
    effects += gateway.decided()
    written: dict[str, str] = {}
    removed: set[str] = set()
    for answer in answers(effects):
        written |= headers_set(answer)
        removed |= set(common_of(answer).header_mutation.remove_headers)
    assert set(FORGED) <= removed | set(written)
    assert written == {DESTINATION_HEADER: PICKED.destination, BOOKING_HEADER: PICKED.booking_id}
    assert not {"x-mine", ":path", ":method"} & removed


def test_forged_headers_are_gone_from_a_buffered_request_before_its_body_comes() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED)
    (first,) = answers(gateway.request_headers({**POST, **FORGED}))
    assert set(common_of(first).header_mutation.remove_headers) == set(FORGED)


def test_a_header_that_we_write_is_never_removed_in_the_same_answer() -> None:
    gateway = Gateway(mode=BodyMode.NONE)
    gateway.request_headers({**POST, **FORGED})
    picked = Picked("10.0.0.1:8000", "booking-1", (("x-data-parallel-rank", "2"),))
    (decision,) = answers(gateway.decided(picked))
    assert not set(headers_set(decision)) & set(common_of(decision).header_mutation.remove_headers)
    assert headers_set(decision)["x-data-parallel-rank"] == "2"


@pytest.mark.parametrize("mode", MODES)
def test_header_values_are_written_as_raw_bytes_that_replace_what_is_there(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    gateway.request_headers(end=True)
    (decision,) = answers(gateway.decided())
    for option in common_of(decision).header_mutation.set_headers:
        assert option.header.raw_value
        assert not option.header.value
        assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD


def test_headers_are_read_from_raw_bytes_or_text_by_lower_case_name() -> None:
    pairs = [
        HeaderValue(key="X-Text", value="text"),
        HeaderValue(key="x-raw", raw_value=b"raw"),
        HeaderValue(key="x-twice", raw_value=b"first"),
        HeaderValue(key="x-twice", raw_value=b"last"),
        HeaderValue(key="x-odd", raw_value=b"\xff"),
    ]
    message = ProcessingRequest(
        request_headers=HttpHeaders(headers=HeaderMap(headers=pairs), end_of_stream=True)
    )
    read = asked(Gateway().send(message)).headers
    assert read == {"x-text": "text", "x-raw": "raw", "x-twice": "last", "x-odd": "\ufffd"}


@pytest.mark.parametrize(
    "headers",
    [{f"x-{index}": "" for index in range(1001)}, {"x-long": "x" * 300_000}],
    ids=["many", "long"],
)
def test_too_many_or_too_large_headers_are_refused(headers: dict[str, str]) -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED)
    assert answers(gateway.request_headers(headers))[0].immediate_response.status.code == 431


@pytest.mark.parametrize(
    ("hint", "subset"),
    [
        ("10.0.0.1:8000", ("10.0.0.1:8000",)),
        ("10.0.0.1:8000, 10.0.0.2:8000", ("10.0.0.1:8000", "10.0.0.2:8000")),
        (["10.0.0.1:8000", "10.0.0.2"], ("10.0.0.1:8000", "10.0.0.2")),
        ([], ()),
        ("", ()),
        (7, ()),
        (None, ()),
    ],
)
def test_the_subset_hint_is_read_from_text_or_list_and_never_widens(
    hint: object, subset: tuple[str, ...]
) -> None:
    message = request_headers(end=True)
    message.metadata_context.filter_metadata[SUBSET_NAMESPACE].update({SUBSET_KEY: hint})  # type: ignore[dict-item]
    assert asked(Gateway().send(message)).subset == subset


def test_without_a_subset_hint_the_whole_pool_is_allowed() -> None:
    assert asked(Gateway().request_headers(end=True)).subset is None
    message = request_headers(end=True)
    message.metadata_context.filter_metadata["envoy.lb"].update({"other": "x"})
    assert asked(Gateway().send(message)).subset is None


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_refusal_is_an_immediate_response_in_the_openai_error_shape(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    gateway.request_headers()
    if mode.collects:
        gateway.request_body(b"{}")
    refusal = Refused(429, "rate_limit_error", "saturated", "all full", "rejected-saturated", 2, "model")
    effects = gateway.decided(refusal)
    (answer,) = answers(effects)
    immediate = answer.immediate_response
    assert immediate.status.code == 429
    assert json.loads(immediate.body) == {
        "error": {"message": "all full", "type": "rate_limit_error", "param": "model", "code": "saturated"}
    }
    assert headers_set(answer) == {
        "content-type": "application/json",
        "x-llm-d-request-dropped-reason": "rejected-saturated",
        "retry-after": "2",
    }
    assert immediate.details == "picker_saturated"
    assert effects[-1] == Close()
    assert gateway.overs == []


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.collects])
def test_a_body_that_is_declared_too_large_is_refused_before_it_comes(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    effects = gateway.request_headers({**POST, "content-length": str(LIMITS.max_body + 1)})
    assert answers(effects)[0].immediate_response.status.code == 413


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.collects])
def test_a_body_that_grows_too_large_is_refused_once_and_its_memory_is_free(mode: BodyMode) -> None:
    gateway = Gateway(mode=mode)
    gateway.request_headers()
    effects = []
    for _ in range(2 if mode is BodyMode.FULL_DUPLEX_STREAMED else 1):
        size = LIMITS.max_body * 2 // 3 if mode is BodyMode.FULL_DUPLEX_STREAMED else LIMITS.max_body + 1
        effects = gateway.request_body(b"x" * size, end=False)
    assert [answer.immediate_response.status.code for answer in answers(effects)] == [413]
    assert gateway.request_body(b"more") == []
    assert gateway.budget.held == 0


def test_a_body_of_exactly_the_limit_is_served() -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    gateway.request_headers({**POST, "content-length": str(LIMITS.max_body)})
    assert len(asked(gateway.request_body(b"x" * LIMITS.max_body)).body or b"") == LIMITS.max_body


def test_a_body_that_the_memory_of_all_streams_cannot_hold_is_answered_429() -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED, budget=100)
    gateway.request_headers()
    gateway.request_body(b"x" * 60, end=False)
    (answer,) = answers(gateway.request_body(b"x" * 60, end=False))
    assert answer.immediate_response.status.code == 429
    assert headers_set(answer)["retry-after"] == "1"
    assert gateway.budget.held == 0


def test_a_body_in_endless_tiny_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picker.serving.request_side.MAX_PIECES", 50)
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    gateway.request_headers()
    effects = [gateway.request_body(b"", end=False) for _ in range(51)][-1]
    assert answers(effects)[0].immediate_response.status.code == 413


def test_a_body_that_does_not_come_in_time_is_answered_408() -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED)
    gateway.request_headers()
    gateway.wait(59)
    gateway.request_body(b"{", end=False)
    assert answers(gateway.wait(1))[0].immediate_response.status.code == 408


def test_a_stream_that_sends_nothing_is_closed() -> None:
    gateway = Gateway()
    assert gateway.wait(60) == [Close()]


def test_a_pick_that_does_not_end_is_abandoned_and_answered_503() -> None:
    gateway = Gateway(mode=BodyMode.NONE)
    gateway.request_headers()
    effects = gateway.wait(60)
    assert effects[0] == Abandon()
    assert answers(effects)[0].immediate_response.status.code == 503
    gateway.decided()
    assert gateway.overs == [(PICKED.booking_id, End.PROVEN)]


def test_a_stream_beyond_the_bound_is_refused_on_its_first_message() -> None:
    gateway = Gateway(mode=BodyMode.FULL_DUPLEX_STREAMED, refuse=STREAMS_FULL)
    assert answers(gateway.request_headers())[0].immediate_response.status.code == 429


def test_messages_out_of_order_before_the_answer_are_refused_and_after_it_let_the_request_go_on() -> None:
    early = Gateway(mode=BodyMode.BUFFERED)
    assert answers(early.request_body(b"{}"))[0].immediate_response.status.code == 500
    late = Gateway(mode=BodyMode.BUFFERED)
    late.up_to_pick()
    assert late.request_headers()[-1] == Close()
    assert late.overs == [(PICKED.booking_id, End.CANCELLED)]


def test_a_message_that_holds_nothing_is_refused() -> None:
    gateway = Gateway()
    assert answers(gateway.send(ProcessingRequest()))[0].immediate_response.status.code == 500
    assert gateway.counts.unreadable == 1


def test_observability_mode_is_answered_with_nothing_and_books_nothing() -> None:
    gateway = Gateway()
    message = request_headers(end=True, mode=BodyMode.STREAMED)
    message.observability_mode = True
    assert gateway.send(message) == []
    assert gateway.request_body(b"x") == []
    assert gateway.response_headers() == []
    assert gateway.half_close() == [Close()]
    assert AT_ONCE_SECONDS > 0
