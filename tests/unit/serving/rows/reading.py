"""Rows of chapter 5: paths, prompts and usage."""

from __future__ import annotations

from picker.requests.ask import Ask
from picker.requests.reading import path_of, read
from picker.responses.counts import Counts as ReadingCounts
from picker.responses.reading import Reading
from picker.responses.usage import Usage
from picker.serving.gateway import headers_set
from picker.serving.seam import (
    DESTINATION_HEADER,
    Picked,
)
from picker.serving.testing import Gateway
from tests.unit.picking.world import World
from tests.unit.serving.rows.shared import (
    BODY,
    BUFFERED,
    DUPLEX,
    STREAMED,
    asked,
    at_body,
    error_of,
    keeps,
    product,
)


def ask_of(path: str, body: bytes = BODY, **headers: str) -> Ask:
    """What is read of a request that came as messages."""
    gateway = Gateway(mode=DUPLEX)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    gateway.request_headers({":method": "POST", **({":path": path} if path else {}), **named})
    request = asked(gateway.request_body(body))
    return read(path_of(request.headers), request.headers, request.body, complete=request.complete)


@keeps("5-1")
def _suffixes() -> None:
    for path in (
        "/v1/chat/completions",
        "/any/prefix/v1/chat/completions?beta=true",
        "/v1/chat/completions/",
    ):
        assert str(ask_of(path, b'{"model":"m","messages":[{"role":"user","content":"a"}]}').api) == "chat"
    messages = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}]}'
    assert str(ask_of("/v1/messages?beta=true", messages).api) == "messages"
    assert str(ask_of("/v1/chat/completions/render", messages).api) == "chat"


@keeps("5-2")
def _hidden_path() -> None:
    chat = b'{"model":"m","messages":[{"role":"user","content":"a"}]}'
    assert str(ask_of("", chat, x_original_path="/v1/chat/completions").api) == "chat"
    assert str(ask_of("", chat, x_forwarded_path="/v1/chat/completions").api) == "chat"
    assert str(ask_of("").api) == "completions"


@keeps("5-3")
async def _unknown_path() -> None:
    for setting, served in (("load", True), ("refuse", False)):
        world = World(unknown_path=setting)
        gateway = Gateway(mode=DUPLEX)
        gateway.request_headers({":method": "POST", ":path": "/my/own"})
        (answer, *_) = await product(gateway, gateway.request_body(b"\x00"), world)
        assert answer.HasField("request_headers") == served
        assert served or error_of(answer)[0] == 400
        world.close()


@keeps("5-4")
def _families() -> None:
    chat = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}]}'
    bodies: dict[str, tuple[str, bytes]] = {
        "/v1/completions": ("completions", BODY),
        "/v1/completions/render": ("completions", BODY),
        "/v1/chat/completions": ("chat", chat),
        "/v1/embeddings": ("embeddings", b'{"model":"m","input":"p"}'),
        "/v1/responses": ("responses", b'{"model":"m","input":"p"}'),
        "/v1/images/generations": ("images", b'{"model":"m","prompt":"p"}'),
        "/v1/messages": ("messages", chat),
        "/v1/messages/count_tokens": ("messages", chat),
        "/inference/v1/generate": ("generate", b'{"token_ids":[1,2],"sampling_params":{}}'),
        "/generate": ("generate", b'{"text":"p"}'),
    }
    for path, (api, body) in bodies.items():
        assert str(ask_of(path, body).api) == api, path


@keeps("5-5")
async def _frames() -> None:
    world = World()
    for body in (b"\x00\xff\xff\xff\xff", b"\x00\x00\x00\x00\x05\x0a\x03abc", b"\x01", b""):
        gateway = Gateway(mode=DUPLEX)
        path = "/vllm.grpc.engine.VllmEngine/Generate"
        gateway.request_headers({":method": "POST", ":path": path, "content-type": "application/grpc"})
        (answer, *_) = await product(gateway, gateway.request_body(body), world)
        assert headers_set(answer)[DESTINATION_HEADER] in world.workers.names
    world.close()


@keeps("5-6")
def _prompts() -> None:
    shapes = {'"a"': 1, '["a","b"]': 2, "[1,2,3]": 1, "[[1,2],[3]]": 2}
    for shape, count in shapes.items():
        assert len(ask_of("/v1/completions", b'{"model":"m","prompt":%s}' % shape.encode()).prompts) == count
    for content in ('"a"', '[{"type":"text","text":"a"}]'):
        body = b'{"model":"m","messages":[{"role":"user","content":%s}]}' % content.encode()
        assert len(ask_of("/v1/chat/completions", body).prompts) == 1


def usage_of(*pieces: bytes, kind: str = "text/event-stream") -> list[Usage]:
    """What is told of a response that comes in these pieces."""
    told: list[Usage] = []
    gateway, _ = at_body(BUFFERED, response_mode=STREAMED)
    gateway.decided(
        Picked("h:1", "b", reading=Reading(ReadingCounts(), told=lambda usage, _: told.append(usage)))
    )
    gateway.response_headers(headers={"content-type": kind})
    for piece in pieces:
        gateway.response_body(piece)
    gateway.response_body(b"", end=True)
    return told


@keeps("5-7")
def _usage() -> None:
    usage = b'{"usage":{"prompt_tokens":3,"completion_tokens":2}}'
    assert usage_of(usage, kind="application/json") == [Usage(3, 2, None)]
    for colon in (b"data: ", b"data:"):
        assert usage_of(colon + usage + b"\n\n", b"data: [DONE]\n\n") == [Usage(3, 2, None)]
    completed = (
        b'data: {"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":2}}}\n\n'
    )
    assert usage_of(completed) == [Usage(3, 2, None)]
    begun = b'data: {"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
    ended = b'data: {"type":"message_delta","usage":{"output_tokens":9}}\n\n'
    assert [(one.input, one.output) for one in usage_of(begun, ended)] == [(3, 9)]
    for strange in (b'{"usage":"oops"}', b'{"usage":{"prompt_tokens":"1024"}}', b'{"usage":[]}'):
        assert all(one.input in (0, 1024) for one in usage_of(b"data: " + strange + b"\n\n"))
