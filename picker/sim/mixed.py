"""Mixed requests, good and bad: everything that clients do to a gateway, drawn from one seed.

Requests go over raw connections, one each, so that they may be late, cut off or malformed. Each ends in one `Outcome`;
what may come back is part of the request, so that `unexpected` needs no knowledge of the run.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from picker.sim.words import WORDS

_HEAD_BYTES = 65_536
CLOSED = 0
ANSWERED = frozenset(range(200, 600))
"""Any status: the request is answered, and what the worker thinks of it is not the gateway's matter."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """One request: bytes to send, piece by piece, and when to leave."""

    kind: str
    pieces: tuple[bytes, ...]
    expected: frozenset[int]
    """Statuses that are right; `CLOSED` for what the gateway itself answers by closing the connection."""
    pause: float = 0.0
    """Seconds between two pieces."""
    leaves: str = ""
    """`sending`: closes the connection after the last piece; `reading`: after the first bytes of the response."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. ``status`` `CLOSED`: there was none."""

    kind: str
    status: int
    fault: str = ""
    """Empty where it went as it should: a right status and a whole answer, or the client itself left."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes: what the replicas take at most, and how large a large body is."""

    limit: int
    huge: int


def mixed(seed: int, count: int, *, model: str, sizes: Sizes) -> Iterator[Mixed]:
    """That many requests; the same for the same arguments. A few hundredths are huge, slow or over the limit."""
    draw = random.Random(seed)
    kinds, weights = zip(*KINDS.items(), strict=True)
    for number in range(count):
        (kind,) = draw.choices(kinds, weights)
        make = _MAKERS[kind]
        yield make(_Maker(draw, f"{seed}-{number}", model, sizes))


async def send_all(
    address: str, requests: Iterable[Mixed], *, concurrency: int, timeout: float
) -> list[Outcome]:
    """Send every request to ``host:port``, at most ``concurrency`` at a time, ``timeout`` seconds for each."""
    host, _, port = address.rpartition(":")
    waiting, outcomes = iter(requests), list[Outcome]()

    async def one_after_the_other() -> None:
        for request in waiting:
            outcomes.append(await _send(host, int(port), request, timeout))

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(one_after_the_other())
    return outcomes


def unexpected(outcomes: Sequence[Outcome]) -> Counter[str]:
    """What went wrong, and how often: empty where every request was answered, or refused explicitly."""
    return Counter(f"{each.kind}: {each.fault}" for each in outcomes if each.fault)


def told(outcomes: Sequence[Outcome]) -> Counter[tuple[str, int]]:
    """How often each kind got each status."""
    return Counter((each.kind, each.status) for each in outcomes)


async def _send(host: str, port: int, request: Mixed, timeout: float) -> Outcome:
    begun = time.monotonic()
    status, fault = CLOSED, ""
    try:
        async with asyncio.timeout(timeout):
            status, fault = await _exchange(host, port, request)
    except TimeoutError:
        fault = f"no end within {timeout:g} s"
    except OSError as error:
        fault = f"no connection: {error}"
    if not fault and request.leaves != "sending" and status not in request.expected:
        fault = f"status {status}" if status else "closed without an answer"
    return Outcome(request.kind, status, fault, time.monotonic() - begun)


async def _exchange(host: str, port: int, request: Mixed) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(host, port, limit=_HEAD_BYTES)
    reading = asyncio.ensure_future(_answer(reader, first_only=request.leaves == "reading"))
    try:
        await _write(writer, request, reading)
        if request.leaves == "sending":
            return CLOSED, ""
        return await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.transport.abort()


async def _write(writer: asyncio.StreamWriter, request: Mixed, reading: asyncio.Future[Any]) -> None:
    """All pieces, unless the answer comes first: a request refused early is not sent to its end."""
    try:
        for number, piece in enumerate(request.pieces):
            if number and request.pause:
                await asyncio.wait({reading}, timeout=request.pause)
            if reading.done():
                return
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        # refused and closed while we sent: the answer is there to be read
        return


async def _answer(reader: asyncio.StreamReader, *, first_only: bool) -> tuple[int, str]:
    """Status of a response and what is wrong with it; the connection closes behind every response."""
    try:
        head = b" 1"
        while head.partition(b" ")[2].startswith(b"1"):  # an informational one comes before the answer
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return CLOSED, ""
    except asyncio.LimitOverrunError:
        return CLOSED, "endless response headers"
    lines = head.decode("latin-1").lower().split("\r\n")
    status = int(lines[0].split(" ")[1])
    length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), None)
    chunked = "transfer-encoding: chunked" in lines
    got, tail = 0, b""
    try:
        while data := await reader.read(65_536):
            got, tail = got + len(data), (tail + data)[-7:]
            if (
                first_only
                or (length is not None and got >= length)
                or (chunked and tail.endswith(b"0\r\n\r\n"))
            ):
                return status, ""
    except ConnectionError:
        return status, "" if got == length else "cut by a reset"
    whole = got == length if length is not None else (tail.endswith(b"0\r\n\r\n") if chunked else True)
    return status, "" if whole else f"cut after {got} bytes"


class _Maker:
    """Makes requests of one draw."""

    def __init__(self, draw: random.Random, name: str, model: str, sizes: Sizes) -> None:
        self.draw, self.name, self.model, self.sizes = draw, name, model, sizes

    def text(self, words: int) -> str:
        return " ".join(self.draw.choices(WORDS, k=words))

    def chat(self, words: int = 60, **more: Any) -> dict[str, Any]:
        messages = [
            {
                "role": "system",
                "content": f"You are assistant {self.draw.randrange(8)}. " + " ".join(WORDS[:40]),
            },
            {"role": "user", "content": self.text(words)},
        ]
        return {"model": self.model, "messages": messages, "max_tokens": self.draw.randint(1, 8), **more}

    def head(
        self, path: str, *, length: int | None, method: str = "POST", headers: Sequence[tuple[str, str]] = ()
    ) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            "host: pool.example",
            "connection: close",
            "content-type: application/json",
            f"x-request-id: mixed-{self.name}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        if length is not None:
            lines.append(f"content-length: {length}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def whole(
        self,
        kind: str,
        path: str,
        body: object,
        *,
        expected: frozenset[int] = frozenset({200}),
        headers: Sequence[tuple[str, str]] = (),
        leaves: str = "",
    ) -> Mixed:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        return Mixed(
            kind, (self.head(path, length=len(data), headers=headers) + data,), expected, leaves=leaves
        )


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def _other(it: _Maker) -> Mixed:
    """Other APIs and unknown paths: routed, whatever the worker says to them."""
    path, body = it.draw.choice(
        [
            ("/v1/embeddings", {"model": it.model, "input": [it.text(10), it.text(20)]}),
            ("/v1/responses", {"model": it.model, "input": it.text(30)}),
            ("/v1/messages", it.chat()),
            ("/v1/messages/count_tokens", it.chat()),
            ("/v1/audio/speech", {"model": it.model, "input": it.text(5)}),
            ("/v1/images/generations", {"model": it.model, "prompt": it.text(5)}),
            ("/rerank", {"model": it.model, "query": it.text(3)}),
            ("/no/such/path?x=%00", {"a": 1}),
        ]
    )
    return it.whole("other path", path, body, expected=ANSWERED)


def _get(it: _Maker) -> Mixed:
    path = it.draw.choice(["/v1/models", "/health", "/", "/%2e%2e/%2e%2e"])
    return Mixed("get", (it.head(path, length=None, method="GET"),), ANSWERED)


def _broken(it: _Maker) -> Mixed:
    whole = orjson.dumps(it.chat())
    body = it.draw.choice(
        [
            whole[: it.draw.randrange(1, len(whole))],
            b"",
            b"not json",
            b"\xff\xfe" + whole,
            b"[" * 5_000,
            b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
            b'{"model": 1, "messages": "x"}',
            orjson.dumps({"model": it.model}),
            b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
            b"1" * 400,
        ]
    )
    return it.whole("broken", CHAT, body, expected=frozenset({400, 404, 422}))


def _huge(it: _Maker) -> Mixed:
    """Mostly beside the prompt: a prompt of that size keeps a simulated worker busy for seconds."""
    words = it.text(400)
    large = words * (it.sizes.huge // len(words))
    if it.draw.random() < 0.9:
        return it.whole("huge", CHAT, it.chat(metadata={"note": large}))
    body = it.chat(2)
    body["messages"][1]["content"] = large
    # longer than the context of any worker: the worker says so
    return it.whole("huge prompt", CHAT, body, expected=frozenset({400}))


def _over(it: _Maker) -> Mixed:
    size = it.sizes.limit + 1000
    if it.draw.random() < 0.5:
        return Mixed("over the limit", (it.head(CHAT, length=size), b"x" * 100_000), frozenset({413}))
    head = it.head(CHAT, length=None, headers=[("transfer-encoding", "chunked")])
    piece = b"x" * 250_000
    chunk = b"%x\r\n%b\r\n" % (len(piece), piece)
    chunks = (chunk,) * (size // len(piece) + 1)
    return Mixed("over the limit", (head, *chunks, b"0\r\n\r\n"), frozenset({413}))


def _slow(it: _Maker) -> Mixed:
    data = orjson.dumps(it.chat())
    step = len(data) // 4 + 1
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    return Mixed(
        "slow", (it.head(CHAT, length=len(data)), *pieces), frozenset({200}), pause=it.draw.uniform(0.05, 0.3)
    )


def _left_sending(it: _Maker) -> Mixed:
    data = orjson.dumps(it.chat(it.draw.choice([5, 2_000])))
    sent = data[: it.draw.randrange(len(data))]
    return Mixed(
        "left in mid-body", (it.head(CHAT, length=len(data)), sent), ANSWERED, leaves="sending", pause=0.02
    )


def _left_reading(it: _Maker) -> Mixed:
    return it.whole(
        "left in mid-response", CHAT, it.chat(stream=True, min_tokens=64, max_tokens=64), leaves="reading"
    )


def _odd_headers(it: _Maker) -> Mixed:
    odd = it.draw.choice(
        [
            [(f"x-odd-{number}", "v") for number in range(80)],
            [("x-long", "a" * 6_000)],
            [("x-latin", "\xe4\xf6\xfc"), ("x-empty", ""), ("x-comma", ",,,;;;===")],
            [("x-gateway-destination-endpoint", "10.9.9.9:1"), ("x-picker-booking", "another")],
            [("accept-encoding", "gzip, br"), ("expect", "100-continue")],
            [("authorization", "Bearer " + "s" * 2_000), ("cookie", "a=b; " * 300)],
        ]
    )
    return it.whole("odd headers", CHAT, it.chat(), headers=odd)


def _too_many_headers(it: _Maker) -> Mixed:
    headers = [(f"x-odd-{number}", "v" * 200) for number in range(500)]
    return it.whole("too many headers", CHAT, it.chat(), headers=headers, expected=frozenset({CLOSED, 431}))


def _malformed(it: _Maker) -> Mixed:
    text = it.draw.choice(
        [
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nhost: b\r\nno colon\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET  HTTP/9.9\r\n\r\n",
        ]
    )
    return Mixed("malformed", (text,), frozenset({CLOSED, 400}))


_MAKERS: dict[str, Callable[[_Maker], Mixed]] = {
    "chat": lambda it: it.whole("chat", CHAT, it.chat(n=it.draw.choice([1, 1, 2]))),
    "stream": lambda it: it.whole("stream", CHAT, it.chat(stream=True)),
    "completion": lambda it: it.whole(
        "completion",
        COMPLETIONS,
        {
            "model": it.model,
            "max_tokens": 2,
            "prompt": it.draw.choice(
                [it.text(30), [it.text(10), it.text(12)], [it.draw.randrange(100) for _ in range(50)]]
            ),
        },
    ),
    "other path": _other,
    "get": _get,
    "broken": _broken,
    "huge": _huge,
    "over the limit": _over,
    "slow": _slow,
    "left in mid-body": _left_sending,
    "left in mid-response": _left_reading,
    "odd headers": _odd_headers,
    "too many headers": _too_many_headers,
    "malformed": _malformed,
}
KINDS = {
    "chat": 22,
    "stream": 14,
    "completion": 12,
    "other path": 8,
    "get": 3,
    "broken": 11,
    "huge": 0.5,
    "over the limit": 1,
    "slow": 6,
    "left in mid-body": 8,
    "left in mid-response": 8,
    "odd headers": 4,
    "too many headers": 1,
    "malformed": 1.5,
}
"""How many in a hundred are of each kind."""
