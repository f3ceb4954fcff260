"""What is recorded: every pair of body modes, the special cases, and requests that other pickers answer otherwise."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import aiohttp
from aiohttp import web

from picker.core.load import Load
from picker.serving.reading import SUBSET_KEY, SUBSET_NAMESPACE
from picker.serving.seam import BOOKING_HEADER, DESTINATION_HEADER, HttpRequest, Picked, Refused
from picker.sim.envoy import BodyMode
from tests.unit.picking.world import World

WORKER, DEAD = "127.0.0.1:8000", "127.0.0.1:8001"
"""As they stand in transcripts; when recorded they are real, and nobody listens on the second."""
PICKED = Picked(WORKER, "booking-1", (("x-test-set", "by-us"),))
FULL = Refused(429, "rate_limit_error", "saturated", "all full", "rejected-saturated", 1)
BODY = b'{"model":"m","prompt":"Say it."}'
OTHER = b'{"model":"another-model","prompt":"Say it."}'
LONG = b'{"model":"m","prompt":"%s"}' % (b"x" * 200_000)
MODES: tuple[BodyMode, ...] = ("NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED")
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Client:
    """A client of one listener."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, method: str = "POST", path: str = COMPLETIONS, data: Any = BODY, **more: str) -> int:
        """Send one request, read the answer whole; its status."""
        headers = {"user-agent": "client", "accept-encoding": "identity"} | more
        if isinstance(data, bytes):
            headers |= {"content-type": "application/json", "content-length": str(len(data))}
            data = io.BytesIO(data)
        async with self.session.request(method, self.url + path, data=data, headers=headers) as response:
            await response.read()
            return response.status

    async def raw(self, *lines: bytes) -> None:
        """Send these bytes on a connection of its own, and wait for the end of the answer."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for line in lines:
            writer.write(line)
            await writer.drain()
            await asyncio.sleep(0.05)
        await reader.read()
        writer.close()

    async def leave(self) -> None:
        """Leave in the middle of an event stream."""
        headers = {"user-agent": "client", "accept-encoding": "identity", "x-test-answer": "sse:30"}
        async with self.session.post(self.url + COMPLETIONS, data=BODY, headers=headers) as response:
            await response.content.readline()
            await asyncio.sleep(0.25)
            response.close()


Do = Callable[[Client], Awaitable[Any]]
Pick = Callable[[HttpRequest], Awaitable[Picked | Refused]]


async def picked(_: HttpRequest) -> Picked:
    """The worker, whatever is asked."""
    return PICKED


def always(answer: Picked | Refused) -> Pick:
    """That answer, whatever is asked."""

    async def pick(_: HttpRequest) -> Picked | Refused:
        return answer

    return pick


@cache
def _world(empty: bool) -> World:
    """A pool of the worker that serves, and of a dead one that costs more; or of none."""
    world = World()
    world.workers.names[:] = [] if empty else [WORKER, DEAD]
    world.workers.loads[DEAD] = Load(0, 1_000_000, 0)
    for name in (WORKER, DEAD):
        world.index.add(name)
    return world


def decided(*, empty: bool = False) -> Pick:
    """What the product decides."""

    async def pick(request: HttpRequest) -> Picked | Refused:
        answer = await _world(empty).picking.decide(request)
        return replace(answer, booking_id="booking-1") if isinstance(answer, Picked) else answer

    return pick


async def _ask(client: Client) -> int:
    return await client.ask()


def asks(method: str = "POST", path: str = COMPLETIONS, data: Any = BODY, **headers: str) -> Do:
    """A client that sends one request; ``_`` in a header's name stands for ``-``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def do(client: Client) -> int:
        return await client.ask(method, path, data() if callable(data) else data, **named)

    return do


def gets(path: str = "/v1/models", **headers: str) -> Do:
    """A client that sends a request without a body."""
    return asks("GET", path, None, **headers)


async def _pieces() -> AsyncIterator[bytes]:
    for piece in (BODY[:10], BODY[10:]):
        yield piece
        await asyncio.sleep(0.05)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""  # never: this makes it an iterator of nothing


async def _trailers(client: Client) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n"
    body = b"%x\r\n%s\r\n0\r\nx-end: 1\r\n\r\n" % (len(BODY), BODY)
    await client.raw(head + b"connection: close\r\n\r\n", body)


async def _leaves(client: Client) -> None:
    await client.leave()


async def _gives_up(client: Client) -> None:
    """Leave while the pick waits."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.ask()


@dataclass(frozen=True, slots=True)
class Case:
    """One request through one listener."""

    name: str
    about: str
    request_mode: BodyMode = "FULL_DUPLEX_STREAMED"
    response_mode: BodyMode = "NONE"
    client: Do = _ask
    pick: Pick = picked
    pick_seconds: float = 0.0
    hold: Literal["headers", "response"] = "response"
    subset: object = None
    """The subset hint that the gateway sends; None: none."""
    observed: bool = False
    """The filter only watches."""
    buffer_limit: int = 0
    """Bytes that the gateway buffers; 0: as usual."""
    skips_responses: bool = False
    """The gateway shows nothing of responses."""
    ahead: bool = False
    """The gateway sends body pieces without waiting for the answer to the headers."""
    walks: int = 0
    """Endpoints of the list that the gateway tries after the first."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Lines of the head: what we answer (``ours``) and what the Go pickers do (``go-pickers``)."""


def _pairs() -> list[Case]:
    stream = asks(x_test_answer="sse:3")
    return [
        Case(
            f"pair-{request}-{response}".lower().replace("_", "-"),
            f"a streamed answer with request body {request} and response body {response}",
            request, response, stream,
        )
        for request in MODES
        for response in MODES
    ]  # fmt: skip


def _special() -> list[Case]:
    buffered: dict[str, Any] = {"request_mode": "BUFFERED", "response_mode": "STREAMED"}
    forged = gets(
        **{DESTINATION_HEADER: "6.6.6.6:1", BOOKING_HEADER: "forged", "x-llm-d-inference-objective": "vip"}
    )
    forged_post = asks(**{DESTINATION_HEADER: "6.6.6.6:1", BOOKING_HEADER: "forged", "x-slo-ttft-ms": "1"})
    return [
        Case("get-buffered", "a request without a body, buffered", client=gets(), **buffered),
        Case("get-duplex", "a request without a body, full duplex", client=gets()),
        Case("forged-get", "control headers of a client on a request without a body", client=forged, **buffered),
        Case("chunked-buffered", "a body of unknown length, buffered", client=asks(data=_pieces), **buffered),
        Case("chunked-duplex", "a body of unknown length in two pieces, full duplex", client=asks(data=_pieces)),
        Case("long-duplex", "a body of 200 KB, full duplex", client=asks(data=LONG)),
        Case("long-buffered", "a body of 200 KB, buffered", client=asks(data=LONG), **buffered),
        Case("trailers-duplex", "a body that trailers end, full duplex", client=_trailers),
        Case("empty-duplex", "a body that turns out to be empty, full duplex", client=asks(data=_nothing)),
        Case("declared-empty-duplex", "a body that is declared to be empty, full duplex", client=asks(data=b"")),
        Case("rewritten-buffered", "another body goes on, buffered: its length with it",
             pick=always(replace(PICKED, body=OTHER)), **buffered),
        Case("rewritten-partial", "another body goes on, in mode BUFFERED_PARTIAL", "BUFFERED_PARTIAL", "STREAMED",
             pick=always(replace(PICKED, body=OTHER))),
        Case("rewritten-chunked", "another body goes on in place of one of unknown length, buffered",
             client=asks(data=_pieces), pick=always(replace(PICKED, body=OTHER)), **buffered),
        Case("rewritten-duplex", "another body goes on, full duplex", pick=always(replace(PICKED, body=OTHER))),
        Case("forged-post", "control headers of a client, on a body that is buffered", client=forged_post, **buffered),
        Case("skipped-response", "the gateway shows nothing of the response", skips_responses=True),
        Case("sent-ahead", "body pieces that come without waiting", "STREAMED", "NONE", ahead=True),
        Case("over-buffer-limit", "a body that the gateway will not buffer: it answers 413 by itself",
             client=asks(data=LONG), buffer_limit=32_768, **buffered),
        Case("cut-partial", "a body that the gateway cuts at its limit", "BUFFERED_PARTIAL", "STREAMED",
             client=asks(data=LONG), buffer_limit=32_768),
        Case("refused-buffered", "a refusal after the empty headers answer", pick=always(FULL), **buffered),
        Case("refused-duplex", "a refusal before anything was answered", pick=always(FULL)),
        Case("refused-get", "a refusal of a request without a body", client=gets(), pick=always(FULL)),
        Case("unreachable", "nobody listens where the request goes", pick=always(replace(PICKED, destination=DEAD))),
        Case("leaves-held", "a client leaves in the middle of a held response", client=_leaves),
        Case("leaves-shown", "a client leaves in the middle of a response that is shown", client=_leaves, **buffered),
        Case("leaves-waiting", "a client leaves while the pick waits", client=_gives_up, pick_seconds=1.0, **buffered),
        Case("let-go-none", "the stream is closed with OK after response headers", client=asks(x_test_answer="sse:3"),
             hold="headers"),
        Case("let-go-streamed", "the same where the response's body would be shown",
             client=asks(x_test_answer="sse:3"), hold="headers", **buffered),
        Case("walked", "the first endpoint of the list is dead, the second serves",
             pick=always(replace(PICKED, destination=f"{DEAD},{WORKER}")), walks=1),
        Case("observed", "a filter that only watches", "STREAMED", "STREAMED", observed=True, walks=1),
        Case("response-pieces", "a JSON answer in several pieces, full duplex both ways",
             response_mode="FULL_DUPLEX_STREAMED", client=asks(x_test_answer="pieces:4")),
        Case("response-broken-json", "an answer that is no JSON, full duplex both ways",
             response_mode="FULL_DUPLEX_STREAMED", client=asks(x_test_answer="broken")),
        Case("response-long", "an answer of 100 KB, full duplex both ways",
             response_mode="FULL_DUPLEX_STREAMED", client=asks(x_test_answer="long")),
        Case("response-empty", "an answer without a body, shown in pieces", client=asks(x_test_answer="empty"),
             **buffered),
        Case("worker-resets", "the worker breaks off in the middle of a streamed answer",
             client=asks_broken("reset:3"), **buffered),
    ]  # fmt: skip


def asks_broken(answer: str) -> Do:
    """A client whose answer breaks off."""

    async def do(client: Client) -> None:
        with suppress(aiohttp.ClientError):
            await client.ask(**{"x-test-answer": answer})

    return do


PLAIN_400 = "400, plain text"


def _policies() -> list[Case]:
    """Requests that other pickers answer too; beside each, what they do."""
    wrong = b'{"model":'
    no_model = json.dumps({"prompt": "p"}).encode()
    no_prompt = json.dumps({"model": "m"}).encode()

    def case(name: str, about: str, ours: str, theirs: str, **more: Any) -> Case:
        told = {"ours": ours, "go-pickers": theirs}
        return Case(f"policy-{name}", about, answers=told, **{"pick": decided(), **more})

    return [
        case("not-json", "a body that is no JSON", "400 bad_request", PLAIN_400, client=asks(data=wrong)),
        case("no-model", "a completion without a model: the engine has one", "picked", PLAIN_400,
             client=asks(data=no_model)),
        case("no-prompt", "a completion without a prompt", "400 bad_request", PLAIN_400, client=asks(data=no_prompt)),
        case("split-body", "a body in several messages", "picked", "picked", client=asks(data=_pieces)),
        case("empty-pool", "a completion while the pool is empty", "503 no_endpoints", "503, plain text",
             pick=decided(empty=True)),
        case("empty-pool-get", "a request without a body while the pool is empty", "503 no_endpoints", "500",
             client=gets(), pick=decided(empty=True)),
        case("subset-best", "the hint holds the cheapest worker", "picked", "picked", subset=[WORKER]),
        case("subset-partial", "the hint holds a worker of the pool and a stranger", "picked", "picked",
             subset=[WORKER, "10.9.9.9:8000"]),
        case("subset-none", "the hint holds no worker of the pool", "503 no_endpoints", "503, plain text",
             subset=["10.9.9.9:8000"]),
        case("subset-empty", "the hint is there and empty", "503 no_endpoints", "503, plain text", subset=[]),
        case("subset-text", "the hint is text in place of a list", "picked", "picked from the whole pool",
             subset=f"{WORKER},10.9.9.9:8000"),
        case("subset-get", "the hint holds no worker, on a request without a body", "503 no_endpoints",
             "picked from the whole pool", client=gets(), subset=["10.9.9.9:8000"]),
        case("get", "a request without a body", "picked", "picked", client=gets()),
        case("query", "a path with a query", "picked", "picked", client=asks(path=COMPLETIONS + "?beta=true")),
        case("unknown-path", "a path that nobody knows", "picked", "400 unless passed through",
             client=asks(path="/my/own/api", data=b"\x00\x01")),
    ]  # fmt: skip


CASES: list[Case] = [*_pairs(), *_special(), *_policies()]


def configure(config: dict[str, Any], number: int, case: Case) -> None:
    """Make the gateway's listener what the case needs."""
    listener = config["static_resources"]["listeners"][number]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_protocol_options"] = {"enable_trailers": True}
    if case.buffer_limit:
        listener["per_connection_buffer_limit_bytes"] = case.buffer_limit
    ext_proc = manager["http_filters"][0]["typed_config"]
    if case.skips_responses:
        ext_proc["processing_mode"] |= {"response_header_mode": "SKIP", "response_trailer_mode": "SKIP"}
    if case.ahead:
        ext_proc["send_body_without_waiting_for_header_response"] = True
    if case.observed:
        ext_proc |= {"observability_mode": True, "deferred_close_timeout": "0.1s"}
        del ext_proc["processing_mode"]["response_trailer_mode"]
    if case.subset is not None:
        manager["http_filters"].insert(0, _hint(case.subset))


def _hint(subset: object) -> dict[str, Any]:
    kind = "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config"
    metadata = [{"metadata_namespace": SUBSET_NAMESPACE, "value": {SUBSET_KEY: subset}}]
    return {"name": "envoy.filters.http.set_metadata", "typed_config": {"@type": kind, "metadata": metadata}}


async def worker_answer(request: web.Request) -> web.StreamResponse:
    """The worker: answers as the client's header says."""
    await request.read()
    how, _, count = request.headers.get("x-test-answer", "json").partition(":")
    headers = {"server": "worker"}
    if how == "json":
        return web.json_response({"model": "m", "usage": {"prompt_tokens": 3}}, headers=headers)
    if how == "empty":
        return web.Response(status=204, headers=headers)
    if how == "long":
        return web.Response(
            body=b'{"text":"' + b"y" * 100_000 + b'"}', content_type="application/json", headers=headers
        )
    if how == "broken":
        return web.Response(body=b'{"text":', content_type="application/json", headers=headers)
    kind = "application/json" if how == "pieces" else "text/event-stream"
    response = web.StreamResponse(headers={"content-type": kind, **headers})
    await response.prepare(request)
    for index in range(int(count)):
        await response.write(b'data: {"n":%d}\n\n' % index if how != "pieces" else b'"%d"' % index)
        await asyncio.sleep(0.15)
    if how == "reset":
        assert request.transport is not None
        request.transport.abort()
    return response
