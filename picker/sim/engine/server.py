"""The HTTP face of a simulated engine: the OpenAI API, metrics, and pages that tell a test the truth."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Awaitable, Callable, Iterable

import orjson
from aiohttp import web

from picker.sim.engine.api import Reader, RequestError, Shapes, Wanted, usage_of
from picker.sim.engine.engine import Engine, QueueFullError
from picker.sim.engine.metrics import Page
from picker.sim.engine.options import Options
from picker.sim.engine.scheduler import Sequence
from picker.sim.engine.truth import blocks, lives, load, stats
from picker.sim.engine.voices import VOICES, Event, Told, Voice

_LARGE_BODY = 65_536
"""Bytes from which on a body is tokenised off the event loop."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """One engine served over HTTP. `start()`, then `url`, then `stop()`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.engine = Engine(options)
        self._reader = Reader(options, self.engine.tokenizer)
        self._page = Page(self.engine)
        self._runner = web.AppRunner(
            self._app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        self._life: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.options.host}:{self.port}"

    @property
    def life(self) -> asyncio.Task[None]:
        """The engine's loop; it ends only by a fault or by `stop()`."""
        assert self._life is not None
        return self._life

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        self._life = asyncio.create_task(self.engine.run(), name="engine")
        await self._runner.setup()
        await web.TCPSite(self._runner, self.options.host, self.options.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Cut what runs and close every socket."""
        await self._runner.cleanup()
        self.life.cancel()
        await asyncio.gather(self.life, return_exceptions=True)

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._answer(chat=True))
        app.router.add_post("/v1/completions", self._answer(chat=False))
        for path, voice in VOICES.items():
            app.router.add_post(path, self._answer(chat=True, voice=voice))
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/reset_prefix_cache", self._reset)
        app.router.add_post("/sleep", self._sleep)
        app.router.add_post("/wake_up", self._wake_up)
        app.router.add_get("/debug/load", self._truth(lambda: load(self.engine)))
        app.router.add_get("/debug/lives", self._lives)
        app.router.add_get("/debug/blocks", self._truth(lambda: blocks(self.engine)))
        app.router.add_get("/debug/stats", self._truth(lambda: stats(self.engine)))
        return app

    def _answer(self, *, chat: bool, voice: Voice | None = None) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            try:
                raw = raw if voice is None else voice.read(raw)
                if len(raw) < _LARGE_BODY:
                    wanted = self._reader.read(raw, chat=chat)
                else:
                    wanted = await asyncio.to_thread(self._reader.read, raw, chat=chat)
                sequences = self._submit(wanted, request)
            except RequestError as refusal:
                return self._json(refusal.body(), status=refusal.status)
            try:
                if voice is not None:
                    return await self._voiced(request, wanted, sequences[0], voice)
                return await (self._stream if wanted.stream else self._plain)(request, wanted, sequences)
            finally:
                for sequence in sequences:
                    self.engine.leave(sequence)
                    self._observe(sequence)

        return answer

    def _submit(self, wanted: Wanted, request: web.Request) -> list[Sequence]:
        try:
            self.engine.room_for(len(wanted.prompts) * wanted.n)
        except QueueFullError as full:
            raise RequestError(str(full), status=503) from full
        # a header that is no text is told as text all the same
        name = request.headers.get("x-request-id", "").encode(errors="replace").decode() or uuid.uuid4().hex
        booking = request.headers.get("x-picker-booking", "")
        longest = min(self.options.max_model_len, self.options.blocks * self.options.block_size)
        sequences: list[Sequence] = []
        for prompt in wanted.prompts:
            for sample in range(wanted.n):
                answer, ends_by = self.engine.speech.answer(
                    prompt, wanted.limits, room=longest - len(prompt), sample=sample
                )
                sequence = Sequence(name, prompt, answer, ends_by, wanted.lora, wanted.salt, booking)
                self.engine.submit(sequence)
                sequences.append(sequence)
        return sequences

    async def _plain(self, _: web.Request, wanted: Wanted, sequences: list[Sequence]) -> web.StreamResponse:
        answers: list[tuple[str, str]] = []
        for sequence in sequences:
            said = [token async for piece in self.engine.pieces(sequence) for token in piece]
            answers.append((self.engine.tokenizer.decode(said), sequence.ends_by))
        shapes = Shapes(wanted, _answer_name(wanted, sequences))
        return self._json(shapes.whole(answers, _usage(wanted, sequences)))

    async def _stream(
        self, request: web.Request, wanted: Wanted, sequences: list[Sequence]
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", **self._who()}
        )
        await response.prepare(request)
        shapes = Shapes(wanted, _answer_name(wanted, sequences))
        told = asyncio.Lock()

        async def tell(*pieces: dict[str, object]) -> None:
            async with told:
                await response.write(b"".join(b"data: " + orjson.dumps(piece) + b"\n\n" for piece in pieces))

        async def follow(index: int, sequence: Sequence) -> None:
            opening = [shapes.opening(index)] if wanted.chat else []
            said = 0
            async for tokens in self.engine.pieces(sequence):
                pieces = []
                for token in tokens:
                    said += 1
                    ends_by = sequence.ends_by if said == len(sequence.answer) else None
                    pieces.append(shapes.piece(index, self.engine.tokenizer.decode([token]), ends_by))
                await tell(*opening, *pieces)
                opening = []

        if len(sequences) == 1:
            await follow(0, sequences[0])
        else:
            async with asyncio.TaskGroup() as group:
                for index, sequence in enumerate(sequences):
                    group.create_task(follow(index, sequence))
        if wanted.usage:
            await tell(shapes.closing(_usage(wanted, sequences)))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _voiced(
        self, request: web.Request, wanted: Wanted, sequence: Sequence, voice: Voice
    ) -> web.StreamResponse:
        """An answer in another API's shape."""
        speech, said = voice.speech(wanted.model, sequence.name), ""
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", **self._who()}
        )

        async def tell(events: Iterable[Event]) -> None:
            if wanted.stream:
                lines = (
                    f"event: {each['type']}\ndata: ".encode() + orjson.dumps(each) + b"\n\n"
                    for each in events
                )
                await response.write(b"".join(lines))

        if wanted.stream:
            await response.prepare(request)
        async for tokens in self.engine.pieces(sequence):
            opening = [] if said else speech.opening(_told(sequence))
            text = self.engine.tokenizer.decode(tokens)
            said += text
            await tell([*opening, speech.piece(text)])
        if not wanted.stream:
            return self._json(speech.whole(said, sequence.ends_by, _told(sequence)))
        await tell(speech.closing(said, sequence.ends_by, _told(sequence)))
        await response.write_eof()
        return response

    def _observe(self, sequence: Sequence) -> None:
        if sequence.state != "finished":
            return
        timings = self._page.timings
        timings.first_token.observe(sequence.first_token - sequence.arrived)
        timings.queue.observe(sequence.admitted - sequence.arrived)
        timings.whole.observe(sequence.ended - sequence.arrived)

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            wanted = self._reader.read(raw, chat=b'"messages"' in raw)
        except RequestError as refusal:
            return self._json(refusal.body(), status=refusal.status)
        tokens = wanted.prompts[0]
        facts = {"count": len(tokens), "max_model_len": self.options.max_model_len, "tokens": tokens}
        return self._json(facts)

    async def _models(self, _: web.Request) -> web.StreamResponse:
        names = (self.options.model, *self.options.loras)
        cards = [
            {
                "id": name,
                "object": "model",
                "owned_by": "vllm",
                "max_model_len": self.options.max_model_len,
                "parent": None if name == self.options.model else self.options.model,
            }
            for name in names
        ]
        return self._json({"object": "list", "data": cards})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=503 if self.life.done() else 200, headers=self._who())

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        return web.Response(
            body=self._page.text(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _reset(self, _: web.Request) -> web.StreamResponse:
        return self._json({"cleared": self.engine.clear_cache()})

    async def _sleep(self, request: web.Request) -> web.StreamResponse:
        level = request.query.get("level", "1")
        if level not in ("1", "2"):
            return self._json(RequestError(f"level must be 1 or 2, not {level!r}").body(), status=400)
        done = self.engine.sleep(int(level))
        return self._json({"asleep": done}, status=200 if done else 409)

    async def _wake_up(self, _: web.Request) -> web.StreamResponse:
        self.engine.wake_up()
        return self._json({"asleep": False})

    async def _lives(self, request: web.Request) -> web.StreamResponse:
        after = request.query.get("after", "0")
        if not after.isdecimal():
            return self._json(RequestError(f"after must be a number, not {after!r}").body(), status=400)
        return self._json(lives(self.engine, int(after)))

    def _truth(self, page: Callable[[], object]) -> Handler:
        async def answer(_: web.Request) -> web.StreamResponse:
            return self._json(page())

        return answer

    def _json(self, body: object, *, status: int = 200) -> web.Response:
        headers = {"content-type": "application/json", **self._who()}
        return web.Response(body=orjson.dumps(body), status=status, headers=headers)

    def _who(self) -> dict[str, str]:
        return {"x-sim-worker": self.options.name}


def _answer_name(wanted: Wanted, sequences: list[Sequence]) -> str:
    return ("chatcmpl-" if wanted.chat else "cmpl-") + sequences[0].name


def _told(sequence: Sequence) -> Told:
    return Told(len(sequence.prompt), sequence.cached, sequence.produced)


def _usage(wanted: Wanted, sequences: list[Sequence]) -> dict[str, object]:
    """Each prompt counts once, however many choices it has."""
    first = sequences[:: wanted.n]
    return usage_of(
        sum(len(each.prompt) for each in first),
        sum(each.cached for each in first),
        sum(each.produced for each in sequences),
    )


async def serve(options: Options, ready: Callable[[Server], None]) -> None:
    """Serve until SIGTERM or SIGINT, or until the engine itself fails; `ready` is called once it listens."""
    server = Server(options)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await server.start()
    server.life.add_done_callback(lambda _: stop.set())
    ready(server)
    await stop.wait()
    failed = server.life.exception() if server.life.done() and not server.life.cancelled() else None
    await server.stop()
    if failed:
        raise failed
