"""Rows of chapters 2.1 and 2.2: the request's direction."""

from __future__ import annotations

import pytest

from picker.serving.effects import Close
from picker.serving.gateway import POST, common_of, headers_set, request_headers, request_trailers
from picker.serving.seam import (
    End,
    Picked,
    Refused,
)
from picker.serving.testing import PICKED, Gateway, answers
from picker.sim.envoy import Listener, envoy_config
from tests.unit.picking.world import World
from tests.unit.serving.rows.shared import (
    BODY,
    BUFFERED,
    DUPLEX,
    FORGED,
    GET,
    LONG,
    MODES,
    NONE,
    PARTIAL,
    STREAMED,
    all_said,
    asked,
    asks,
    at_body,
    changes_nothing,
    decides,
    error_of,
    keeps,
    kinds,
    picked,
    product,
    streamed,
)


@keeps("2.1-1")
def _held_back() -> None:
    assert Gateway(mode=DUPLEX).request_headers() == []


@keeps("2.1-2")
def _late() -> None:
    gateway, before = at_body(DUPLEX)
    headers, *pieces = answers(gateway.decided())
    assert before == []
    assert headers.WhichOneof("response") == "request_headers"
    assert decides(headers)
    assert not any(decides(piece) for piece in pieces)
    assert b"".join(streamed(piece).body for piece in pieces) == BODY


@keeps("2.1-3")
def _at_once() -> None:
    (answer,) = answers(Gateway(mode=BUFFERED).request_headers())
    assert answer.WhichOneof("response") == "request_headers"
    assert changes_nothing(answer)


@keeps("2.1-4")
def _in_the_body() -> None:
    gateway, _ = at_body(BUFFERED)
    (answer,) = answers(gateway.decided())
    assert answer.WhichOneof("response") == "request_body"
    assert decides(answer)


@keeps("2.1-5")
async def _cut() -> None:
    whole, said = at_body(PARTIAL)
    assert len(said) == 1
    assert kinds(whole.decided()) == ["request_body"]
    cut = Gateway(mode=PARTIAL)
    cut.request_headers({**POST, "content-length": "90000"})
    effects = cut.request_body(BODY[:9], end=False)
    assert not asked(effects).complete
    world = World()
    (answer,) = await product(cut, effects, world)
    assert answer.WhichOneof("response") == "request_body"
    world.close()


@keeps("2.1-6")
def _without_body() -> None:
    gateway = Gateway(mode=STREAMED)
    assert asked(gateway.request_headers()).body is None
    (answer,) = answers(gateway.decided())
    assert answer.WhichOneof("response") == "request_headers"
    assert decides(answer)


@keeps("2.1-7")
def _streamed_pieces() -> None:
    gateway = picked(STREAMED)
    for end in (False, False, True):
        (answer,) = answers(gateway.request_body(LONG, end=end))
        assert answer.WhichOneof("response") == "request_body"
        assert changes_nothing(answer)


@keeps("2.1-8")
def _none() -> None:
    gateway = Gateway(mode=NONE)
    gateway.request_headers()
    (answer,) = answers(gateway.decided())
    assert answer.WhichOneof("response") == "request_headers"
    assert decides(answer)


@keeps("2.1-9")
def _bodiless() -> None:
    for mode in MODES:
        gateway = Gateway(mode=mode)
        assert asked(gateway.request_headers(GET, end=True)).body is None
        (answer,) = answers(gateway.decided())
        assert decides(answer)
        assert "content-length" not in headers_set(answer)


@keeps("2.1-10")
def _lower_case() -> None:
    message = request_headers({"X-Request-ID": "1", ":PATH": "/x"}, end=True)
    assert asked(Gateway().send(message)).headers.keys() == {"x-request-id", ":path"}


@keeps("2.1-11")
def _collected() -> None:
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers()
    assert [gateway.request_body(BODY[at : at + 1], end=False) for at in range(5)] == [[]] * 5
    assert asked(gateway.request_body(BODY[5:])).body == BODY


@keeps("2.1-12")
def _pieces_back() -> None:
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers()
    gateway.request_body(LONG)
    pieces = [streamed(answer) for answer in answers(gateway.decided())[1:]]
    assert len(pieces) == -(-len(LONG) // 62_000)
    assert [piece.end_of_stream for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert max(len(piece.body) for piece in pieces) <= 62_000
    assert b"".join(piece.body for piece in pieces) == LONG


@keeps("2.1-13")
def _nothing_back() -> None:
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers()
    gateway.request_body(b"", end=True)
    (piece,) = [streamed(answer) for answer in answers(gateway.decided())[1:]]
    assert (piece.body, piece.end_of_stream) == (b"", True)


@keeps("2.1-14")
def _trailers() -> None:
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers()
    gateway.request_body(BODY, end=False)
    assert asked(gateway.send(request_trailers())).body == BODY
    headers, piece, trailers = answers(gateway.decided())
    assert decides(headers)
    assert not streamed(piece).end_of_stream
    assert trailers.WhichOneof("response") == "request_trailers"


@keeps("2.1-15")
def _always_bytes() -> None:
    for body in (b"", BODY, LONG):
        gateway = Gateway(mode=DUPLEX, response_mode=DUPLEX)
        gateway.request_headers()
        gateway.request_body(body)
        said = answers(gateway.decided())[1:]
        gateway.response_headers()
        said += answers(gateway.response_body(body, end=True))
        assert all(streamed(answer) is not None for answer in said)


@keeps("2.1-16")
def _empty_first() -> None:
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers()
    assert gateway.request_body(b"", end=False) == []
    asked(gateway.request_body(BODY))
    assert kinds(gateway.decided()) == ["request_headers", "request_body"]


@keeps("2.1-17")
def _trailer_modes() -> None:
    listener = Listener("one", 1, response_body_mode="FULL_DUPLEX_STREAMED")
    config = envoy_config([listener], ["127.0.0.1:1"], 2)
    (made,) = config["static_resources"]["listeners"]
    filters = made["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    mode = filters[0]["typed_config"]["processing_mode"]
    assert (mode["request_trailer_mode"], mode["response_trailer_mode"]) == ("SEND", "SEND")
    with pytest.raises(ValueError, match="trailers"):
        envoy_config(
            [Listener("one", 1, response_body_mode="FULL_DUPLEX_STREAMED", response_trailers="SKIP")],
            ["127.0.0.1:1"], 2,
        )  # fmt: skip


@keeps("2.1-18")
def _ahead() -> None:
    gateway = Gateway(mode=STREAMED, ahead=True)
    effects = gateway.request_headers() + gateway.request_body(BODY[:4], end=False)
    effects += gateway.request_body(BODY[4:]) or gateway.wait(1)
    assert asks(effects)
    assert kinds(gateway.decided()) == ["request_headers", "request_body", "request_body"]


@keeps("2.2-1")
def _only_removes() -> None:
    (answer,) = answers(Gateway(mode=BUFFERED).request_headers({**POST, **FORGED}))
    common = common_of(answer)
    assert set(common.header_mutation.remove_headers) == set(FORGED)
    assert not common.header_mutation.set_headers
    assert not common.clear_route_cache
    assert not answer.HasField("dynamic_metadata")


@keeps("2.2-2")
def _not_sent_back() -> None:
    for mode in (BUFFERED, PARTIAL):
        gateway, _ = at_body(mode, {**POST, "content-length": str(len(BODY))})
        (answer,) = answers(gateway.decided())
        assert not common_of(answer).HasField("body_mutation")
        assert "content-length" not in headers_set(answer)


@keeps("2.2-3")
def _cleared() -> None:
    for mode in MODES:
        gateway = Gateway(mode=mode, response_mode=STREAMED)
        said = all_said(gateway, mode, STREAMED, PICKED)
        assert sum(decides(answer) for answer in said) == 1  # `decides` holds the three places together


@keeps("2.2-4")
def _never_held_back() -> None:
    for mode in (BUFFERED, PARTIAL):
        for headers in (POST, {**POST, "content-length": "100000"}, {**POST, "transfer-encoding": "chunked"}):
            assert kinds(Gateway(mode=mode).request_headers(headers)) == ["request_headers"]


@keeps("2.2-5")
def _new_length() -> None:
    gateway, _ = at_body(BUFFERED, {**POST, "content-length": str(len(BODY))})
    (answer,) = answers(gateway.decided(Picked("h:1", "b", body=BODY * 2)))
    assert common_of(answer).body_mutation.body == BODY * 2
    assert headers_set(answer)["content-length"] == str(2 * len(BODY))


@keeps("2.2-6")
def _no_length() -> None:
    gateway, _ = at_body(BUFFERED)
    (answer,) = answers(gateway.decided(Picked("h:1", "b", body=BODY * 2)))
    assert common_of(answer).body_mutation.body == BODY * 2
    assert "content-length" not in headers_set(answer)


@keeps("2.2-7")
def _no_streamed_form() -> None:
    for mode in (NONE, STREAMED, BUFFERED, PARTIAL):
        for response_mode in (NONE, STREAMED, BUFFERED, PARTIAL):
            for answer in all_said(
                Gateway(mode=mode, response_mode=response_mode), mode, response_mode, PICKED
            ):
                assert not common_of(answer).body_mutation.HasField("streamed_response")


@keeps("2.2-8")
def _late_refusal() -> None:
    gateway, said = at_body(BUFFERED)
    assert len(said) == 1
    effects = gateway.decided(Refused(429, "rate_limit_error", "saturated", "full", "rejected-saturated", 1))
    assert error_of(answers(effects)[0]) == (429, "rate_limit_error", "saturated")
    assert effects[-1] == Close()


@keeps("2.2-9")
def _local_reply() -> None:
    gateway = Gateway(mode=BUFFERED, response_mode=STREAMED)
    gateway.request_headers()
    effects = gateway.response_headers(413) + gateway.response_body(b"too large", end=True)
    assert not asks(effects)
    assert [changes_nothing(answer) for answer in answers(effects)] == [True, True]
    gateway.cancel()
    assert gateway.overs == []


@keeps("2.2-10")
def _same_end() -> None:
    ends = []
    for how in ("half_close", "cancel"):
        gateway = picked()
        gateway.response_headers()
        gateway.now += 1
        getattr(gateway, how)()
        ends.append(gateway.overs)
    assert ends == [[(PICKED.booking_id, End.HALF_CLOSED)]] * 2


@keeps("2.2-11")
def _left() -> None:
    gateway = picked(response_mode=STREAMED)
    gateway.response_headers(headers={"content-type": "text/event-stream"})
    gateway.response_body(b"data: 1\n\n")
    gateway.now += 1
    gateway.half_close()
    assert gateway.overs == [(PICKED.booking_id, End.HALF_CLOSED)]


@keeps("2.2-12")
def _not_in_the_body() -> None:
    gateway = Gateway(mode=STREAMED)
    assert asks(gateway.request_headers())
    gateway.decided()
    assert not any(decides(answer) for answer in answers(gateway.request_body(BODY)))


@keeps("2.2-13")
def _in_time() -> None:
    for mode in MODES:
        for answer in all_said(Gateway(mode=mode, response_mode=STREAMED), mode, STREAMED, PICKED):
            assert "override_message_timeout" not in {field.name for field, _ in answer.ListFields()}
    unnamed = Gateway()
    unnamed.request_headers()
    assert asks(unnamed.wait(0.15))  # below the shortest limit that gateways start with
