"""Reading and changing a response on its way: which answer, in which mode, and what happens when it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from picker.serving.effects import BodySeen, Close, Decide, Over
from picker.serving.gateway import common_of, headers_set, response_trailers
from picker.serving.modes import BodyMode
from picker.serving.seam import End, Picked, Responded
from picker.serving.testing import LIMITS, PICKED, Gateway, ScriptedReading, answers
from picker.serving.wire.extproc_pb2 import ProcessingResponse

BOOKING = PICKED.booking_id
JSON = {"content-type": "application/json"}
SHOWN = [mode for mode in BodyMode if mode.shows]
WHOLE = [BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL]
DUPLEX = BodyMode.FULL_DUPLEX_STREAMED


def shout(data: bytes, end: bool) -> bytes:
    return data.upper() + b"!" * end


def collect() -> Callable[[bytes, bool], bytes]:
    """Holds everything back until the end."""
    kept: list[bytes] = []

    def piece(data: bytes, end: bool) -> bytes:
        kept.append(data)
        if not end:
            return b""
        whole = b"".join(kept)
        kept.clear()
        return whole

    return piece


def fail(data: bytes, end: bool) -> bytes:
    raise RuntimeError("a defect")


def read_by(reading: ScriptedReading, mode: BodyMode, **more: Any) -> Gateway:
    gateway = Gateway(mode=BodyMode.BUFFERED, response_mode=mode, **more)
    gateway.request_headers()
    gateway.request_body(b"{}")
    gateway.decided(replace(PICKED, reading=reading))
    return gateway


def changed(answer: ProcessingResponse) -> bytes | None:
    """What one answer puts in the place of a piece; None: nothing, the piece goes on."""
    mutation = common_of(answer).body_mutation
    kind = mutation.WhichOneof("mutation")
    assert kind in (None, "body")
    return bytes(mutation.body) if kind else None


def streamed(messages: list[ProcessingResponse]) -> bytes:
    return b"".join(common_of(each).body_mutation.streamed_response.body for each in messages)


@pytest.mark.parametrize("mode", list(BodyMode))
def test_a_request_is_told_whether_its_response_will_be_shown(mode: BodyMode) -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED, response_mode=mode if mode >= 0 else BodyMode.NONE)
    gateway.request_headers()
    (decide,) = gateway.request_body(b"{}")
    assert isinstance(decide, Decide)
    assert decide.request.response_shown == (mode in SHOWN)


def test_a_gateway_that_names_no_mode_is_not_said_to_show_a_response() -> None:
    gateway = Gateway()
    (decide,) = gateway.request_headers(end=True)
    assert isinstance(decide, Decide)
    assert not decide.request.response_shown


@pytest.mark.parametrize("mode", SHOWN)
def test_a_reading_sees_the_headers_and_every_piece_once(mode: BodyMode) -> None:
    reading = ScriptedReading(rewrites=False)
    gateway = read_by(reading, mode)
    gateway.response_headers(201, headers=JSON)
    pieces = [(b"ab", True)] if mode in WHOLE else [(b"a", False), (b"b", True)]
    for data, end in pieces:
        gateway.response_body(data, end=end)
    assert reading.begun == [Responded(201, content_type="application/json")]
    assert reading.pieces == pieces
    assert gateway.overs == [(BOOKING, End.PROVEN)]
    assert gateway.counts.responses_read == 1


@pytest.mark.parametrize("mode", SHOWN)
def test_a_reading_that_may_not_change_anything_changes_nothing(mode: BodyMode) -> None:
    gateway = read_by(ScriptedReading(shout, rewrites=False), mode)
    gateway.response_headers(headers={"content-length": "1"})
    (answer,) = answers(gateway.response_body(b"a", end=True))
    if mode is DUPLEX:
        assert streamed([answer]) == b"a"
    else:
        assert changed(answer) is None


def test_a_streamed_piece_is_answered_once_with_what_goes_on_in_its_place() -> None:
    gateway = read_by(ScriptedReading(shout), BodyMode.STREAMED)
    gateway.response_headers(headers={"content-length": "4"})
    got = [answers(gateway.response_body(data, end=end)) for data, end in ((b"ab", False), (b"CD", False))]
    got.append(answers(gateway.response_body(b"", end=True)))
    assert [[changed(answer) for answer in each] for each in got] == [[b"AB"], [None], [b"!"]]
    assert not any("content-length" in headers_set(answer) for (answer,) in got)
    assert gateway.counts.responses_rewritten == 1


def test_what_is_held_back_is_replaced_by_nothing_and_comes_later() -> None:
    gateway = read_by(ScriptedReading(collect()), BodyMode.STREAMED)
    gateway.response_headers()
    got = [
        answers(gateway.response_body(data, end=end))
        for data, end in ((b"a", False), (b"b", False), (b"", True))
    ]
    assert [[changed(answer) for answer in each] for each in got] == [[b""], [b""], [b"ab"]]


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("mode", WHOLE)
def test_a_whole_response_goes_on_with_its_length_where_the_gateway_keeps_one(
    mode: BodyMode, declared: bool
) -> None:
    gateway = read_by(ScriptedReading(shout), mode)
    gateway.response_headers(headers={"content-length": "2"} if declared else {})
    (answer,) = answers(gateway.response_body(b"ab", end=True))
    assert changed(answer) == b"AB!"
    said = headers_set(answer).get("content-length")
    assert said == ("3" if declared and mode is BodyMode.BUFFERED else None)


@pytest.mark.parametrize("mode", WHOLE)
def test_a_whole_response_whose_end_is_not_marked_is_all_that_a_reading_sees(mode: BodyMode) -> None:
    reading = ScriptedReading(collect())
    gateway = read_by(reading, mode)
    gateway.response_headers()
    (answer,) = answers(gateway.response_body(b"ab", end=False))
    assert changed(answer) is None
    assert reading.pieces == [(b"ab", True)]
    assert len(answers(gateway.send(response_trailers()))) == 1


def test_a_full_duplex_response_goes_on_changed_in_pieces() -> None:
    gateway = read_by(ScriptedReading(shout), DUPLEX)
    gateway.response_headers()
    messages = answers(gateway.response_body(b"a" * 100_000)) + answers(gateway.response_body(b"b", end=True))
    assert streamed(messages) == b"A" * 100_000 + b"B!"
    ends = [common_of(each).body_mutation.streamed_response.end_of_stream for each in messages]
    assert ends == [False] * (len(ends) - 1) + [True]


def test_a_full_duplex_piece_that_is_held_back_is_not_answered_until_something_goes_on() -> None:
    gateway = read_by(ScriptedReading(collect()), DUPLEX)
    gateway.response_headers()
    assert BodySeen(BOOKING) in gateway.response_body(b"a")
    assert answers(gateway.response_body(b"b")) == []
    assert streamed(answers(gateway.response_body(b"", end=True))) == b"ab"


@pytest.mark.parametrize("mode", SHOWN)
def test_a_reading_that_fails_is_dropped_and_the_response_goes_on_unchanged(mode: BodyMode) -> None:
    gateway = read_by(ScriptedReading(fail), mode)
    gateway.response_headers()
    messages = answers(gateway.response_body(b"a")) + answers(gateway.response_body(b"b", end=True))
    if mode is DUPLEX:
        assert streamed(messages) == b"ab"
    else:
        assert [changed(each) for each in messages] == [None, None]
    assert gateway.counts.reading_errors == 1
    assert gateway.overs == [(BOOKING, End.PROVEN)]


def test_a_reading_that_returns_no_bytes_fails_too() -> None:
    gateway = read_by(ScriptedReading(lambda data, end: "text"), BodyMode.STREAMED)  # type: ignore[arg-type, return-value]
    gateway.response_headers()
    (answer,) = answers(gateway.response_body(b"a"))
    assert changed(answer) is None
    assert gateway.counts.reading_errors == 1


def test_a_reading_that_fails_at_the_headers_sees_no_piece() -> None:
    reading = ScriptedReading(shout)
    reading.begin = lambda response: fail(b"", False)  # type: ignore[method-assign, assignment]
    gateway = read_by(reading, BodyMode.STREAMED)
    gateway.response_headers()
    gateway.response_body(b"a", end=True)
    assert reading.pieces == []
    assert gateway.counts.reading_errors == 1


# -- trailers and early ends ----------------------------------------------------------------------------------------


def test_trailers_let_go_of_what_was_held_back_of_a_full_duplex_response() -> None:
    gateway = read_by(ScriptedReading(collect()), DUPLEX)
    gateway.response_headers()
    gateway.response_body(b"ab")
    body, trailers = answers(gateway.send(response_trailers()))
    assert streamed([body]) == b"ab"
    assert not common_of(body).body_mutation.streamed_response.end_of_stream
    assert trailers.WhichOneof("response") == "response_trailers"
    assert gateway.counts.response_tails_lost == 0


def test_what_trailers_cut_off_in_streamed_mode_is_counted() -> None:
    gateway = read_by(ScriptedReading(collect()), BodyMode.STREAMED)
    gateway.response_headers()
    gateway.response_body(b"ab")
    assert len(answers(gateway.send(response_trailers()))) == 1
    assert gateway.counts.response_tails_lost == 1
    assert gateway.budget.held == 0


def test_a_drain_lets_go_of_what_was_held_back_before_it_closes() -> None:
    gateway = read_by(ScriptedReading(collect()), DUPLEX)
    gateway.response_headers()
    gateway.response_body(b"ab")
    effects = gateway.drain()
    assert streamed(answers(effects)) == b"ab"
    assert effects[-1] == Close()


@pytest.mark.parametrize("how", ["half_close", "cancel"])
def test_a_gateway_that_is_gone_gets_nothing_and_frees_what_was_held_back(how: str) -> None:
    gateway = read_by(ScriptedReading(collect()), DUPLEX)
    gateway.response_headers()
    gateway.response_body(b"ab")
    assert gateway.budget.held == 2
    assert answers(getattr(gateway, how)()) == []
    assert gateway.budget.held == 0


def test_headers_that_end_the_response_leave_nothing_to_read() -> None:
    reading = ScriptedReading(shout)
    gateway = read_by(reading, BodyMode.STREAMED)
    gateway.response_headers(204, end=True)
    assert reading.begun == []


# -- memory ---------------------------------------------------------------------------------------------------------


def test_what_a_reading_holds_back_is_paid_and_given_back_when_it_goes_on() -> None:
    gateway = read_by(ScriptedReading(collect()), BodyMode.STREAMED, budget=1000)
    gateway.response_headers()
    gateway.response_body(b"a" * 300)
    gateway.response_body(b"a" * 300)
    assert gateway.budget.held == 600
    gateway.response_body(b"", end=True)
    assert gateway.budget.held == 0


@pytest.mark.parametrize("budget", [500, 1 << 30])
def test_a_reading_that_holds_back_too_much_has_to_let_go_and_sees_no_more(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("picker.serving.passage.MAX_KEPT", 500)
    reading = ScriptedReading(collect())
    gateway = read_by(reading, BodyMode.STREAMED, budget=budget)
    gateway.response_headers()
    bodies = []
    for data in (b"a" * 300, b"b" * 300, b"c" * 300):
        (answer,) = answers(gateway.response_body(data))
        bodies.append(changed(answer))
    assert bodies == [b"", b"a" * 300 + b"b" * 300, None]
    assert gateway.counts.reading_overruns == 1
    assert gateway.counts.response_tails_lost == 0
    assert gateway.budget.held == 0


def test_a_reading_that_makes_every_piece_shorter_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picker.serving.passage.MAX_KEPT", 50)
    gateway = read_by(ScriptedReading(lambda data, end: data[1:]), BodyMode.STREAMED)
    gateway.response_headers()
    for _ in range(200):
        gateway.response_body(b"ab")
    assert gateway.budget.held == 0
    assert gateway.counts.reading_overruns == 0


# -- hold -----------------------------------------------------------------------------------------------------------


def test_under_hold_headers_a_response_that_is_only_read_is_let_go_and_not_read() -> None:
    reading = ScriptedReading(rewrites=False)
    gateway = read_by(reading, BodyMode.STREAMED, hold="headers")
    effects = gateway.response_headers()
    assert effects[-2:] == [Over(BOOKING, End.CLOSED_BY_US), Close()]
    assert reading.begun == []


def test_under_hold_headers_a_response_that_is_changed_is_held_to_its_end() -> None:
    reading = ScriptedReading(shout)
    gateway = read_by(reading, BodyMode.STREAMED, hold="headers")
    assert Close() not in gateway.response_headers()
    (answer,) = answers(gateway.response_body(b"a", end=True))
    assert changed(answer) == b"A!"
    assert gateway.overs == [(BOOKING, End.PROVEN)]


def test_under_hold_headers_a_reading_that_finds_nothing_to_change_lets_go() -> None:
    class Plain(ScriptedReading):
        def begin(self, response: Responded) -> None:
            self.rewrites = False

    gateway = read_by(Plain(), BodyMode.STREAMED, hold="headers")
    assert gateway.response_headers()[-1] == Close()


# -- overrides ------------------------------------------------------------------------------------------------------

OVERRIDING = replace(LIMITS, mode_override=True)


def override_of(effects: list[Any]) -> tuple[int, int, int] | None:
    (answer, *_) = answers(effects)
    if not answer.HasField("mode_override"):
        return None
    mode = answer.mode_override
    assert mode.response_header_mode == mode.SEND
    return mode.request_body_mode, mode.response_body_mode, mode.response_trailer_mode


def decided_on_headers(
    mode: BodyMode, response_mode: BodyMode, reading: ScriptedReading | None, **more: Any
) -> tuple[Gateway, tuple[int, int, int] | None, bool]:
    more.setdefault("limits", OVERRIDING)
    gateway = Gateway(mode=mode, response_mode=response_mode, **more)
    (decide,) = gateway.request_headers(end=mode.collects)
    assert isinstance(decide, Decide)
    picked = Picked("10.0.0.1:8000", BOOKING, reading=reading)
    return gateway, override_of(gateway.decided(picked)), decide.request.response_shown


@pytest.mark.parametrize("mode", [BodyMode.NONE, BodyMode.STREAMED, *WHOLE])
@pytest.mark.parametrize("response_mode", [BodyMode.STREAMED, *WHOLE])
def test_a_response_that_nobody_reads_is_asked_not_to_be_shown(
    mode: BodyMode, response_mode: BodyMode
) -> None:
    _, override, _ = decided_on_headers(mode, response_mode, None)
    assert override == (mode, BodyMode.NONE, 1)


@pytest.mark.parametrize("rewrites", [True, False])
def test_a_response_that_somebody_reads_is_asked_to_be_shown(rewrites: bool) -> None:
    reading = ScriptedReading(shout, rewrites=rewrites)
    gateway, override, shown = decided_on_headers(BodyMode.NONE, BodyMode.NONE, reading)
    assert (override, shown) == ((BodyMode.NONE, BodyMode.STREAMED, 1), True)
    gateway.response_headers()
    (answer,) = answers(gateway.response_body(b"a", end=True))
    assert changed(answer) == (b"A!" if rewrites else None)
    assert len(reading.pieces) == 1


def test_nothing_is_asked_where_the_mode_is_right() -> None:
    for response_mode, reading in ((BodyMode.NONE, None), (BodyMode.STREAMED, ScriptedReading())):
        assert decided_on_headers(BodyMode.NONE, response_mode, reading)[1] is None


@pytest.mark.parametrize(("mode", "response_mode"), [(DUPLEX, BodyMode.STREAMED), (BodyMode.NONE, DUPLEX)])
def test_nothing_is_asked_of_a_full_duplex_gateway(mode: BodyMode, response_mode: BodyMode) -> None:
    assert decided_on_headers(mode, response_mode, None)[1] is None


def test_nothing_is_asked_unless_it_is_set() -> None:
    _, override, shown = decided_on_headers(BodyMode.NONE, BodyMode.NONE, ScriptedReading(), limits=LIMITS)
    assert (override, shown) == (None, False)


def test_nothing_is_asked_of_a_gateway_that_names_no_mode() -> None:
    gateway = Gateway(limits=OVERRIDING)
    gateway.request_headers(end=True)
    assert override_of(gateway.decided()) is None


def test_nothing_is_asked_of_a_gateway_that_sends_ahead() -> None:
    gateway = Gateway(mode=BodyMode.STREAMED, response_mode=BodyMode.STREAMED, ahead=True, limits=OVERRIDING)
    gateway.request_headers()
    gateway.request_body(b"{}")
    assert override_of(gateway.decided()) is None


def test_nothing_is_asked_in_a_buffered_body_s_answer() -> None:
    gateway = Gateway(mode=BodyMode.BUFFERED, response_mode=BodyMode.STREAMED, limits=OVERRIDING)
    gateway.request_headers()
    gateway.request_body(b"{}")
    assert override_of(gateway.decided()) is None


def test_a_stream_that_will_be_let_go_at_its_headers_is_not_asked_to_show_more() -> None:
    reading = ScriptedReading(rewrites=False)
    _, override, _ = decided_on_headers(BodyMode.NONE, BodyMode.NONE, reading, hold="headers")
    assert override is None


@pytest.mark.parametrize("response_mode", [BodyMode.STREAMED, *WHOLE])
def test_a_gateway_that_ignores_an_override_is_answered_in_the_mode_it_told(
    response_mode: BodyMode,
) -> None:
    gateway, override, _ = decided_on_headers(BodyMode.NONE, response_mode, None)
    assert override is not None
    gateway.response_headers()
    for end in (False, True):
        (answer,) = answers(gateway.response_body(b"a", end=end))
        assert changed(answer) is None
    assert gateway.counts.overrides_ignored == 1
    assert gateway.overs == [(BOOKING, End.PROVEN)]


def test_a_gateway_that_does_not_show_what_it_was_asked_for_is_let_be() -> None:
    reading = ScriptedReading(shout)
    gateway, _, _ = decided_on_headers(BodyMode.NONE, BodyMode.NONE, reading)
    gateway.response_headers()
    gateway.half_close()
    assert gateway.overs == [(BOOKING, End.HALF_CLOSED)]
    assert reading.pieces == []
