"""Whatever comes in whatever order: nothing raises, every pick is over exactly once, memory is given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from picker.serving.buffers import Budget
from picker.serving.counts import Counts
from picker.serving.effects import Abandon, Close, Decide, Effect, Over, Send
from picker.serving.exchange import Exchange, Hold, Limits
from picker.serving.gateway import common_of, header_map, headers_set, request_trailers, response_trailers
from picker.serving.modes import BodyMode
from picker.serving.seam import End, HttpRequest, Picked, Refused, Responded
from picker.serving.testing import Gateway, ScriptedReading, answers
from picker.serving.wire.extproc_pb2 import (
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ProcessingRequest,
    ProcessingResponse,
)

DUPLEX = BodyMode.FULL_DUPLEX_STREAMED
TOLD = [mode for mode in BodyMode if mode is not BodyMode.UNTOLD]
NAMES = st.sampled_from(
    [
        ":path",
        ":status",
        "content-length",
        "content-type",
        "content-encoding",
        "trailer",
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
        told = message.protocol_config
        told.request_body_mode = draw(st.integers(-2, 7))  # type: ignore[assignment]
        told.response_body_mode = draw(st.integers(-2, 7))  # type: ignore[assignment]
        told.send_body_without_waiting_for_header_response = draw(st.booleans())
    message.observability_mode = draw(st.integers(0, 20)) == 0
    return message


Act = str
ACTS: st.SearchStrategy[list[Act]] = st.lists(
    st.sampled_from(["pass", "swallow", "keep", "release", "grow", "cut", "raise", "nonsense"]), max_size=6
)


class WildReading(ScriptedReading):
    """Does something else with every piece; when its acts are used up it begins again."""

    def __init__(self, acts: Sequence[Act], *, rewrites: bool, begins: bool = True) -> None:
        super().__init__(self.act, rewrites=rewrites)
        self.acts = list(acts) or ["pass"]
        self.begins = begins
        self.kept = b""
        self.number = 0

    def begin(self, response: Responded) -> None:
        super().begin(response)
        if not self.begins:
            raise ValueError("a defect")

    def act(self, data: bytes, end: bool) -> bytes | None:
        act = self.acts[self.number % len(self.acts)]
        self.number += 1
        if act == "raise":
            raise RuntimeError("a defect")
        if act == "nonsense":
            return "text"  # type: ignore[return-value]
        if act == "keep" and not end:
            self.kept += data
            return b""
        if act == "swallow":
            data = b""
        elif act == "grow":
            data = data * 3 + b"+"
        elif act == "cut":
            data = data[: len(data) // 2]
        elif act == "pass" and not self.kept:
            return None
        kept, self.kept = self.kept, b""
        return kept + data


READINGS = st.none() | st.builds(
    WildReading, ACTS, rewrites=st.booleans(), begins=st.integers(0, 5).map(bool)
)
ANSWERS = st.builds(
    lambda body, reading: Picked("h:1", "", body=body, reading=reading),
    st.none() | st.binary(max_size=120),
    READINGS,
) | st.just(Refused(429, "t", "c", "m"))
EVENTS = st.lists(messages() | ANSWERS | st.sampled_from(["wait", "wait long"]), max_size=30)
LAST = st.sampled_from(["half_closed", "cancelled", "broken", "drain"])
HOLDS: st.SearchStrategy[Hold] = st.sampled_from(["headers", "response"])
BUDGET = 100


@dataclass
class Stream:
    """One exchange, and the books kept of what it asks for."""

    hold: Hold
    limits: Limits
    budget: Budget = field(default_factory=lambda: Budget(BUDGET))
    counts: Counts = field(default_factory=Counts)
    now: float = 0.0
    minted: int = 0
    overs: list[str] = field(default_factory=list)
    picking: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self.exchange = Exchange(
            self.limits, budget=self.budget, hold=lambda: self.hold, counts=self.counts, now=0.0
        )

    def receive(self, message: ProcessingRequest) -> None:
        self.note(self.exchange.receive(message, self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.note(self.exchange.expired(self.now))

    def decide(self, answer: Picked | Refused) -> None:
        if not self.picking:
            return
        self.picking = False
        if isinstance(answer, Picked):
            answer = Picked(answer.destination, f"b{self.minted}", body=answer.body, reading=answer.reading)
            self.minted += 1
        self.note(self.exchange.decided(answer, self.now))

    def note(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert not self.closed or isinstance(effect, Over), "nothing follows a close but late picks"
            self.picking = isinstance(effect, Decide) or (self.picking and not isinstance(effect, Abandon))
            if isinstance(effect, Over):
                self.overs.append(effect.booking_id)
            if isinstance(effect, Send):
                effect.message.SerializeToString()
        assert len(answers(effects)) <= 4 + 30
        self.closed = self.closed or Close() in effects
        assert self.exchange.over == self.closed
        assert 0 <= self.budget.held <= BUDGET
        self.exchange.performed()
        assert 0 <= self.budget.held <= BUDGET
        assert self.exchange.deadline is None or self.exchange.deadline <= self.now + 600

    def end(self, how: str) -> None:
        self.note(self.exchange.drain(self.now) if how == "drain" else getattr(self.exchange, how)(self.now))
        assert self.exchange.over
        assert self.exchange.deadline is None
        assert self.budget.held == 0
        assert sorted(self.overs) == sorted(f"b{number}" for number in range(self.minted))
        assert self.exchange.decided(Picked("h:1", "late"), self.now) == [Over("late", End.PROVEN)]


@settings(max_examples=800, deadline=None)
@given(EVENTS, LAST, HOLDS, st.sampled_from(list(BodyMode)), st.booleans())
def test_any_sequence_is_survived_and_accounted_for(
    events: list[ProcessingRequest | Picked | Refused | str],
    last: str,
    hold: Hold,
    forced: BodyMode,
    override: bool,
) -> None:
    stream = Stream(hold, Limits(80, 60, 600, forced, override))
    for event in events:
        if isinstance(event, ProcessingRequest):
            stream.receive(event)
        elif isinstance(event, str):
            stream.wait(0.05 if event == "wait" else 700.0)
        else:
            stream.decide(event)
    stream.end(last)


# -- bytes ----------------------------------------------------------------------------------------------------------

EDITS = st.lists(
    st.tuples(st.sampled_from(["flip", "insert", "delete", "cut"]), st.floats(0, 1), st.integers(0, 255)),
    max_size=4,
)


def edited(data: bytes, edits: list[tuple[str, float, int]]) -> bytes:
    for how, where, value in edits:
        at = int(where * len(data))
        if how == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (value or 1)]) + data[at + 1 :]
        elif how == "insert":
            data = data[:at] + bytes([value]) + data[at:]
        elif how == "delete":
            data = data[:at] + data[at + 1 :]
        elif how == "cut":
            data = data[:at]
    return data


@settings(max_examples=800, deadline=None)
@given(st.lists(st.tuples(messages(), EDITS, ANSWERS), max_size=15), LAST, HOLDS, st.booleans())
def test_any_bytes_are_survived_and_accounted_for(
    sent: list[tuple[ProcessingRequest, list[tuple[str, float, int]], Picked | Refused]],
    last: str,
    hold: Hold,
    override: bool,
) -> None:
    stream = Stream(hold, Limits(80, 60, 600, mode_override=override))
    for message, edits, answer in sent:
        try:
            received = ProcessingRequest.FromString(edited(message.SerializeToString(), edits))
        except DecodeError:
            received = ProcessingRequest()
        stream.receive(received)
        stream.decide(answer)
    stream.end(last)


# -- whole conversations --------------------------------------------------------------------------------------------


@dataclass
class Conversation:
    """A gateway in good order: what it sends, and what a worker and a client get from our answers."""

    mode: BodyMode
    response_mode: BodyMode
    body: list[bytes]
    trailers: bool
    response: list[bytes]
    response_trailers: bool
    new_body: bytes | None
    reading: WildReading | None
    hold: Hold
    to_worker: bytes = b""
    to_client: bytes = b""
    asked: HttpRequest | None = None

    def run(self) -> Gateway:
        self.gateway = Gateway(mode=self.mode, response_mode=self.response_mode, hold=self.hold)
        self.request()
        if self.respond():
            self.gateway.half_close()
        assert self.gateway.exchange.over
        assert [booking for booking, _ in self.gateway.overs] == ["booking"]
        assert self.gateway.budget.held == 0
        return self.gateway

    def note(self, effects: list[Effect], kind: str, piece: bytes | None = None) -> None:
        """One message was sent: it got exactly one answer of its kind, and its piece went on so or so."""
        own = [answer for answer in answers(effects) if answer.WhichOneof("response") == kind]
        duplex = (self.mode if "request" in kind else self.response_mode) is DUPLEX
        assert len(own) == 1 or (duplex and piece is not None)
        if piece is not None:
            went_on = b"".join(passed(answer, piece) for answer in own)
            if kind == "request_body":
                self.to_worker += went_on
            else:
                self.to_client += went_on

    def request(self) -> None:
        declared = {} if self.trailers else {"content-length": str(sum(map(len, self.body)))}
        effects = self.gateway.request_headers(declared)
        whole = b"".join(self.body)
        pieces = [whole] if self.mode.whole else self.body
        if self.mode is DUPLEX:
            assert effects == []
            for index, piece in enumerate(pieces):
                effects = self.gateway.request_body(piece, end=not self.trailers and index == len(pieces) - 1)
            if self.trailers:
                effects = self.gateway.send(request_trailers())
            effects = self.decided(effects)
            assert answers(effects)[0].WhichOneof("response") == "request_headers"
            self.note(effects, "request_body", b"")
            return
        if not self.mode.whole:
            effects = self.decided(effects)
        self.note(effects, "request_headers")
        if self.mode is BodyMode.NONE:
            return
        for index, piece in enumerate(pieces):
            effects = self.gateway.request_body(piece, end=not self.trailers and index == len(pieces) - 1)
            if self.mode.whole:
                effects = self.decided(effects)
            self.note(effects, "request_body", piece)
        if self.trailers:
            self.note(self.gateway.send(request_trailers()), "request_trailers")

    def decided(self, effects: list[Effect]) -> list[Effect]:
        (decide,) = effects
        assert isinstance(decide, Decide)
        self.asked = decide.request
        return self.gateway.decided(Picked("h:1", "booking", body=self.new_body, reading=self.reading))

    def respond(self) -> bool:
        """Whether the stream was held to the response's end."""
        effects = self.gateway.response_headers(headers={"content-length": "1"})
        self.note(effects, "response_headers")
        if self.gateway.exchange.over:
            self.to_client = b"".join(self.response)
            return False
        if self.response_mode is BodyMode.NONE:
            return True
        pieces = [b"".join(self.response)] if self.response_mode.whole else self.response
        for index, piece in enumerate(pieces):
            end = not self.response_trailers and index == len(pieces) - 1
            self.note(self.gateway.response_body(piece, end=end), "response_body", piece)
        if self.response_trailers:
            effects = self.gateway.send(response_trailers())
            self.note(effects, "response_trailers")
            self.note(effects, "response_body", b"") if self.response_mode is DUPLEX else None
        return True


def passed(answer: ProcessingResponse, piece: bytes) -> bytes:
    """What an answer lets go on of a piece."""
    mutation = common_of(answer).body_mutation
    match mutation.WhichOneof("mutation"):
        case "streamed_response":
            return bytes(mutation.streamed_response.body)
        case "body":
            length = headers_set(answer).get("content-length", str(len(mutation.body)))
            assert length == str(len(mutation.body))
            return bytes(mutation.body)
        case _:
            return piece


PIECES = st.lists(st.binary(max_size=30) | st.just(b"x" * 70_000), min_size=1, max_size=5)
CONVERSATIONS = st.builds(
    Conversation,
    st.sampled_from(TOLD),
    st.sampled_from(TOLD),
    PIECES,
    st.booleans(),
    PIECES,
    st.booleans(),
    st.none() | st.binary(max_size=100) | st.just(b"y" * 130_000),
    READINGS,
    HOLDS,
)


@settings(max_examples=800, deadline=None)
@given(CONVERSATIONS)
def test_every_message_of_a_gateway_in_good_order_is_answered_and_the_bodies_are_right(
    talk: Conversation,
) -> None:
    gateway = talk.run()
    assert talk.asked is not None
    whole = b"".join(talk.body)
    if talk.mode is not BodyMode.NONE:
        assert talk.to_worker == (
            talk.new_body if talk.asked.rewritable and talk.new_body is not None else whole
        )
    assert talk.asked.body == (whole if talk.mode.collects else None)
    if talk.response_mode is BodyMode.NONE:
        return
    plain = b"".join(talk.response)
    reading = talk.reading
    if reading is None or not reading.rewrites or not reading.begins:
        assert talk.to_client == plain
    elif not gateway.counts.response_tails_lost:
        assert talk.to_client == modelled(talk, reading, plain)


def modelled(talk: Conversation, reading: WildReading, plain: bytes) -> bytes:
    """What a client gets if a reading alone decides."""
    twin = WildReading(reading.acts, rewrites=True)
    pieces = [plain] if talk.response_mode.whole else talk.response
    ended = talk.response_mode.whole or not talk.response_trailers
    calls = [(piece, ended and index == len(pieces) - 1) for index, piece in enumerate(pieces)]
    if not ended:
        calls.append((b"", True))
    out = b""
    for index, (piece, end) in enumerate(calls):
        try:
            told = twin.act(piece, end)
        except RuntimeError:
            return out + b"".join(data for data, _ in calls[index:])
        if told is not None and not isinstance(told, bytes):
            return out + b"".join(data for data, _ in calls[index:])
        out += piece if told is None else told
    return out


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=30_000), max_size=12), st.booleans())
def test_any_cut_of_a_full_duplex_body_comes_back_unchanged(pieces: list[bytes], trailers: bool) -> None:
    exchange = Exchange(
        Limits(1 << 20, 60, 600), budget=Budget(1 << 20), hold=lambda: "response", counts=Counts(), now=0.0
    )
    first = ProcessingRequest(request_headers=HttpHeaders())
    first.protocol_config.request_body_mode = DUPLEX  # type: ignore[assignment]
    effects = exchange.receive(first, 0.0)
    for piece in pieces:
        effects += exchange.receive(ProcessingRequest(request_body=HttpBody(body=piece)), 0.0)
    last = ProcessingRequest(request_trailers=HttpTrailers())
    if not trailers:
        last = ProcessingRequest(request_body=HttpBody(end_of_stream=True))
    effects += exchange.receive(last, 0.0)
    effects += exchange.decided(Picked("h:1", "b"), 0.0)
    streamed = [
        message.request_body.response.body_mutation.streamed_response
        for message in answers(effects)
        if message.HasField("request_body")
    ]
    assert b"".join(piece.body for piece in streamed) == b"".join(pieces)
    assert sum(piece.end_of_stream for piece in streamed) == (0 if trailers else 1)
    assert all(len(piece.body) <= 62_000 for piece in streamed)
