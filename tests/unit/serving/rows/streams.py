"""Rows of chapter 2: streams and their messages."""

from __future__ import annotations

import json

from picker.serving.effects import Close
from picker.serving.exchange import Limits
from picker.serving.gateway import common_of, request_headers, request_trailers, response_trailers
from picker.serving.seam import (
    Refused,
)
from picker.serving.testing import PICKED, Gateway, answers
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
    asked,
    asks,
    decides,
    error_of,
    keeps,
    kinds,
    picked,
)


@keeps("2-1")
def _kinds() -> None:
    gateway = Gateway(mode=BUFFERED, response_mode=STREAMED)
    assert kinds(gateway.request_headers()) == ["request_headers"]
    gateway.request_body(BODY)
    assert kinds(gateway.decided()) == ["request_body"]
    assert kinds(gateway.response_headers()) == ["response_headers"]
    assert kinds(gateway.response_body(b"x")) == ["response_body"]
    assert kinds(gateway.send(response_trailers())) == ["response_trailers"]
    again = picked()
    assert Close() in again.request_headers()  # a second request has no place on it


@keeps("2-2")
def _order() -> None:
    gateway = Gateway(mode=DUPLEX)
    gateway.request_headers()
    gateway.request_body(LONG, end=False)
    gateway.send(request_trailers())
    assert kinds(gateway.decided()) == ["request_headers", *["request_body"] * 4, "request_trailers"]


@keeps("2-3")
def _one_each() -> None:
    for mode in (NONE, STREAMED, BUFFERED, PARTIAL):
        for response_mode in (NONE, STREAMED, BUFFERED, PARTIAL):
            gateway = Gateway(mode=mode, response_mode=response_mode)
            sent = 1 + (mode is not NONE) + 1 + 2 * (response_mode is not NONE)
            assert len(all_said(gateway, mode, response_mode, PICKED)) == sent
            assert answers(gateway.wait(1)) == []


@keeps("2-4")
def _named() -> None:
    for mode in MODES:
        for response_mode in MODES:
            gateway = Gateway(mode=mode, response_mode=response_mode)
            assert asks(gateway.request_headers()) == (not mode.collects)
            if mode.collects:
                gateway.request_body(BODY)
            gateway.decided()
            gateway.response_headers()
            if response_mode is not NONE:
                (answer,) = answers(gateway.response_body(b"x", end=True))
                given_back = common_of(answer).body_mutation.HasField("streamed_response")
                assert given_back == (response_mode is DUPLEX)


@keeps("2-5")
def _unnamed() -> None:
    silent, sends = Gateway(), Gateway()
    silent.request_headers()
    assert asked(silent.wait(0.1)).body is None
    assert decides(answers(silent.decided())[0])
    sends.request_headers()
    sends.request_body(BODY[:3], end=False)
    assert asked(sends.request_body(BODY[3:])).body == BODY
    assert kinds(sends.decided()) == ["request_headers", "request_body"]


@keeps("2-6")
def _overridden() -> None:
    for mode in MODES:
        gateway = Gateway(mode=DUPLEX, limits=Limits(1 << 20, 60, 600, mode=mode))
        assert asks(gateway.request_headers()) == (not mode.collects)


@keeps("2-7")
def _refused_mode() -> None:
    for direction in ("request_body_mode", "response_body_mode"):
        for number in (5, 77):
            message = request_headers(mode=BUFFERED)
            setattr(message.protocol_config, direction, number)
            (answer,) = answers(Gateway().send(message))
            assert error_of(answer)[0] == 500
            assert str(number) in json.loads(answer.immediate_response.body)["error"]["message"]


@keeps("2-8")
def _content() -> None:
    for mode in MODES:
        for response_mode in MODES:
            for answer in (PICKED, Refused(429, "rate_limit_error", "saturated", "full")):
                gateway = Gateway(mode=mode, response_mode=response_mode)
                said = all_said(gateway, mode, response_mode, answer)
                assert said
                assert all(one.WhichOneof("response") for one in said)


@keeps("2-9")
def _closes() -> None:
    assert picked(hold="headers").response_headers()[-1] == Close()
    assert picked().drain()[-1] == Close()
    quiet = picked()
    quiet.response_headers()
    assert quiet.wait(600)[-1] == Close()


@keeps("2-10")
def _watched() -> None:
    gateway = Gateway()
    message = request_headers(end=True, mode=STREAMED, response_mode=STREAMED)
    message.observability_mode = True
    effects = gateway.send(message) + gateway.response_headers() + gateway.response_body(b"x", end=True)
    assert effects == []
    gateway.half_close()
    assert gateway.overs == []
