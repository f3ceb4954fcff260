"""Rows of chapter 3: headers, lengths and rewritten models."""

from __future__ import annotations

from picker.requests.rewriting import Rewrite, Rule, Rules, Target
from picker.responses.counts import Counts as ReadingCounts
from picker.responses.reading import Reading
from picker.serving.gateway import POST, common_of, headers_set
from picker.serving.seam import (
    BOOKING_HEADER,
    DESTINATION_HEADER,
    Picked,
    Refused,
)
from picker.serving.testing import PICKED, Gateway, answers
from picker.serving.wire.extproc_pb2 import (
    HeaderMap,
    HeaderValue,
    HttpHeaders,
    ProcessingRequest,
)
from tests.unit.picking.world import World
from tests.unit.serving.rows.shared import (
    BODY,
    BUFFERED,
    DUPLEX,
    FORGED,
    GET,
    MODES,
    NONE,
    PARTIAL,
    STREAMED,
    all_said,
    asked,
    at_body,
    keeps,
    product,
)


@keeps("3-1")
def _raw() -> None:
    refusal = Refused(429, "rate_limit_error", "saturated", "full", "rejected-saturated", 1)
    options = []
    for answer in (PICKED, refusal):
        (said,) = answers(at_body(BUFFERED)[0].decided(answer))
        immediate = said.HasField("immediate_response")
        mutation = said.immediate_response.headers if immediate else common_of(said).header_mutation
        options += list(mutation.set_headers)
    assert len(options) == 5
    assert all(option.header.raw_value and not option.header.value for option in options)


@keeps("3-2")
def _either() -> None:
    pairs = [HeaderValue(key="a", value="text"), HeaderValue(key="b", raw_value=b"raw", value="text")]
    headers = HttpHeaders(headers=HeaderMap(headers=pairs), end_of_stream=True)
    assert asked(Gateway().send(ProcessingRequest(request_headers=headers))).headers == {
        "a": "text",
        "b": "raw",
    }


@keeps("3-3")
def _one_value() -> None:
    gateway, _ = at_body(BUFFERED, {**POST, **FORGED})
    (answer,) = answers(gateway.decided())
    options = common_of(answer).header_mutation.set_headers
    keys = [option.header.key for option in options]
    assert len(set(keys)) == len(keys)
    assert {option.append_action for option in options} == {options[0].OVERWRITE_IF_EXISTS_OR_ADD}


@keeps("3-4")
def _untouchable() -> None:
    headers = {
        **POST,
        **FORGED,
        ":authority": "a",
        ":scheme": "http",
        "host": "a",
        "x-envoy-attempt-count": "1",
    }
    for mode in MODES:
        gateway, said = at_body(mode, headers)
        said += answers(gateway.decided())
        touched: set[str] = set()
        for answer in said:
            touched |= headers_set(answer).keys() | set(common_of(answer).header_mutation.remove_headers)
        assert not {name for name in touched if name.startswith((":", "x-envoy")) or name == "host"}


@keeps("3-5")
def _where_held_back() -> None:
    for mode in MODES:
        for answer in all_said(Gateway(mode=mode, response_mode=STREAMED), mode, STREAMED, PICKED):
            if answer.HasField("request_body") and headers_set(answer):
                assert mode in (BUFFERED, PARTIAL)
            if answer.HasField("response_body"):
                assert not headers_set(answer)


@keeps("3-6")
def _where_kept() -> None:
    for mode in MODES:
        for body in (None, BODY * 2):
            gateway = Gateway(mode=mode)
            said = all_said(gateway, mode, NONE, Picked("h:1", "b", body=body))
            written = [
                headers_set(answer)["content-length"]
                for answer in said
                if "content-length" in headers_set(answer)
            ]
            assert written == ([str(len(BODY) * 2)] if mode is BUFFERED and body else [])


@keeps("3-7")
def _only_ours() -> None:
    own = {f"x-own-{number}": "v" for number in range(50)}
    gateway, _ = at_body(DUPLEX, {**POST, **own})
    assert headers_set(answers(gateway.decided())[0]).keys() == {DESTINATION_HEADER, BOOKING_HEADER}


@keeps("3-8")
async def _forged() -> None:
    for mode in MODES:
        for end in (False, True):
            world = World()
            gateway = Gateway(mode=mode)
            effects = gateway.request_headers({**POST, **FORGED}, end=end)
            said = answers(effects)
            if mode.collects and not end:
                effects = gateway.request_body(BODY)
            said += await product(gateway, effects, world)
            removed = {name for one in said for name in common_of(one).header_mutation.remove_headers}
            written = {name: value for one in said for name, value in headers_set(one).items()}
            assert set(FORGED) <= removed | written.keys()
            assert written[DESTINATION_HEADER] in world.workers.names
            assert not set(written.values()) & set(FORGED.values())
            world.close()


@keeps("3-9")
def _trace() -> None:
    headers = {**GET, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    gateway = Gateway()
    gateway.request_headers(headers, end=True)
    (answer,) = answers(gateway.decided())
    touched = headers_set(answer).keys() | set(common_of(answer).header_mutation.remove_headers)
    assert "traceparent" not in touched


@keeps("3-10")
async def _rewritten() -> None:
    for headers, model in (
        ({}, b"engine"),
        ({"x-llm-d-model-name-rewrite": "named"}, b"named"),
        (None, None),
    ):
        world = World()
        if headers is not None:
            rule = Rule("rule", frozenset({"m"}), (Target("engine"),))
            world.rules.rules = Rules.of([Rewrite("r", (rule,))])
        body = b'{"z": 1,  "model":"m", "prompt":"p"}'
        gateway = Gateway(mode=BUFFERED)
        gateway.request_headers({**POST, "content-length": str(len(body)), **(headers or {})})
        (answer,) = await product(gateway, gateway.request_body(body), world)
        mutation = common_of(answer).body_mutation
        assert mutation.body == (b"" if model is None else body.replace(b'"m"', b'"%s"' % model))
        world.close()


@keeps("3-11")
def _named_back() -> None:
    for response_mode in (STREAMED, BUFFERED, DUPLEX):
        gateway, _ = at_body(BUFFERED, response_mode=response_mode)
        gateway.decided(Picked("h:1", "b", reading=Reading(ReadingCounts(), name="mine")))
        gateway.response_headers(headers={"content-type": "text/event-stream"})
        whole = b'data: {"model":"engine-v1","choices":[]}\n\ndata: [DONE]\n\n'
        cuts = [whole] if response_mode is BUFFERED else [whole[:20], whole[20:]]
        said = [answers(gateway.response_body(piece, end=piece is cuts[-1])) for piece in cuts]
        out = b""
        for piece, replies in zip(cuts, said, strict=True):
            for reply in replies:
                mutation = common_of(reply).body_mutation
                kind = mutation.WhichOneof("mutation")
                out += (
                    mutation.streamed_response.body if kind == "streamed_response"
                    else mutation.body if kind == "body" else piece
                )  # fmt: skip
        assert out == whole.replace(b"engine-v1", b"mine")
