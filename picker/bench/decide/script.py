"""What a gateway says on one ext_proc stream, written once and sent again and again. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from picker.serving.wire.extproc_pb2 import (
    HeaderMap,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    ProcessingMode,
    ProcessingRequest,
)
from picker.sim.model import MODEL
from picker.sim.words import WORDS

Mode = Literal["full_duplex_streamed", "buffered"]
PATH = "/v1/chat/completions"
ID = "00000000-0000-4000-8000-000000000000"
"""Stands in the messages where each stream has a request id of its own."""
PIECE = 16_384
"""Bytes of one piece of a body, as Envoy reads them from a client."""
SHARED = 0.5
"""Part of each prompt that all prompts of one size begin with."""


@dataclass(frozen=True, slots=True)
class Script:
    """The messages of one stream, each with its five bytes of gRPC before it."""

    headers: bytes
    body: bytes
    response: bytes
    id_at: int
    """Where the request id stands in ``headers``."""

    def opening(self, number: int) -> bytes:
        """The headers with the request id of the stream of that number."""
        head, end = self.id_at, self.id_at + len(ID)
        return b"%b%08x%b%b" % (
            self.headers[:head],
            number & 0xFFFFFFFF,
            ID[8:].encode(),
            self.headers[end:],
        )


def prompts(size: int, count: int, *, seed: int) -> list[bytes]:
    """So many bodies of about ``size`` bytes: chat completions whose texts begin alike and end differently."""
    rng = random.Random(f"prompts {size} {seed}")
    room = max(size - len(_chat("", "")), 8)
    shared = _text(rng, int(room * SHARED))
    return [_chat(shared, _text(rng, room - len(shared))) for _ in range(count)]


def fresh(size: int, number: int, *, seed: int) -> bytes:
    """A body of that size which no other number has: its text is new from its first word on."""
    rng = random.Random(f"fresh {size} {seed} {number}")
    room = max(size - len(_chat("", "")), 8)
    return _chat("", _text(rng, room))


def script(body: bytes, mode: Mode, *, event_stream: bool = True) -> Script:
    """The stream of a request with that body, of a gateway whose response body mode is NONE."""
    head = ProcessingRequest(request_headers=HttpHeaders(headers=_request_headers(len(body))))
    head.protocol_config.request_body_mode = ProcessingMode.BodySendMode.Value(mode.upper())
    head.protocol_config.response_body_mode = ProcessingMode.BodySendMode.NONE
    opening = framed(head.SerializeToString())
    kind = "text/event-stream" if event_stream else "application/json"
    answer = ProcessingRequest(
        response_headers=HttpHeaders(headers=_headers({":status": "200", "content-type": kind}))
    )
    pieces = [body] if mode == "buffered" else [body[at : at + PIECE] for at in range(0, len(body), PIECE)]
    said = [
        ProcessingRequest(request_body=HttpBody(body=piece, end_of_stream=place == len(pieces) - 1))
        for place, piece in enumerate(pieces)
    ]
    return Script(
        headers=opening,
        body=b"".join(framed(one.SerializeToString()) for one in said),
        response=framed(answer.SerializeToString()),
        id_at=opening.index(ID.encode()),
    )


def scripts(size: int, count: int, mode: Mode, *, seed: int) -> list[Script]:
    """Scripts of `prompts`."""
    return [script(body, mode) for body in prompts(size, count, seed=seed)]


def framed(message: bytes) -> bytes:
    """A message of gRPC, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def _request_headers(length: int) -> HeaderMap:
    return _headers(
        {
            ":method": "POST",
            ":path": PATH,
            ":authority": "models.example.com",
            ":scheme": "http",
            "user-agent": "OpenAI/Python 2.8.1",
            "accept": "application/json",
            "accept-encoding": "gzip, deflate",
            "content-type": "application/json",
            "content-length": str(length),
            "authorization": "Bearer none",
            "x-stainless-lang": "python",
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-proto": "http",
            "x-envoy-internal": "true",
            "x-request-id": ID,
        }
    )


def _headers(fields: dict[str, str]) -> HeaderMap:
    return HeaderMap(
        headers=[HeaderValue(key=name, raw_value=value.encode()) for name, value in fields.items()]
    )


def _chat(system: str, user: str) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    asked = {"model": MODEL, "messages": messages, "max_tokens": 64, "stream": True}
    return json.dumps(asked, separators=(",", ":")).encode()


def _text(rng: random.Random, size: int) -> str:
    words: Sequence[str] = rng.choices(WORDS, k=size // 3 + 1)
    return " ".join(words)[:size]
