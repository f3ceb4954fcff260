"""Records what the real Envoy says on ext_proc streams: ``python tests/transcripts/record.py [NAME...]``.

Starts Envoy, our server, a worker and clients on loopback, has each case of `tests.transcripts.cases` happen once, and
writes one file per case to ``tests/transcripts/recorded``, without ports, dates and ids. To be run when the version of
the gateway changes, or what we answer: the difference then stands in the commit.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import aiohttp  # noqa: E402 - after the path, when it is run as a program
from aiohttp import web  # noqa: E402
from google.protobuf import text_format  # noqa: E402

from picker.serving.effects import Effect  # noqa: E402
from picker.serving.exchange import Exchange  # noqa: E402
from picker.serving.seam import End, HttpRequest, LogEntry, Picked, Refused, Responded  # noqa: E402
from picker.serving.server import Server  # noqa: E402
from picker.serving.shown import Shown  # noqa: E402
from picker.serving.shown import read as shown_in  # noqa: E402
from picker.serving.wire.extproc_pb2 import ProcessingRequest  # noqa: E402
from picker.settings import ServingSettings  # noqa: E402
from picker.sim.envoy import Listener, envoy_config  # noqa: E402
from picker.sim.processes import free_ports  # noqa: E402
from tests.serving.conformance.gateway import eventually, running_envoy  # noqa: E402
from tests.transcripts.cases import CASES, WORKER, Case, Client, configure, worker_answer  # noqa: E402
from tests.transcripts.transcript import (  # noqa: E402
    FOLDER,
    MAX_BODY,
    Entry,
    Event,
    Transcript,
    answer_text,
    entries_of,
    gist,
    read,
    replayed,
    written,
)

ENVOY = "1.40.0"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DATE = re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")
_UPSTREAM_TIME = re.compile(r'(key: "x-envoy-upstream-service-time"\s+raw_value: ")\d+"')


class Kept(Shown):
    """A message with the bytes it was read from."""

    __slots__ = ("data",)

    data: bytes

    @classmethod
    def read(cls, data: bytes) -> Kept:
        shown, kept = shown_in(data), cls("")
        for name in Shown.__slots__:
            setattr(kept, name, getattr(shown, name))
        kept.data = data
        return kept


class Tap:
    """An exchange that writes down what happens to it."""

    def __init__(self, notes: list[Event], clean: Callable[[str], str], *given: Any, **named: Any) -> None:
        self._exchange = Exchange(*given, **named)
        self._notes, self._clean, self._began = notes, clean, float(named["now"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exchange, name)

    def _note(self, word: str, text: str, effects: list[Effect], now: float) -> list[Effect]:
        if not effects and self._exchange.over:
            return effects  # after its end: whether the gateway says so too is chance
        asked = [Entry(one.word, self._clean(one.text)) for effect in effects for one in entries_of(effect)]
        self._notes.append(Event(now - self._began, Entry(word, self._clean(text)), asked))
        return effects

    def receive(self, message: Kept, now: float) -> list[Effect]:
        text = text_format.MessageToString(ProcessingRequest.FromString(message.data)).strip()
        return self._note("receive", text, self._exchange.receive(message, now), now)

    def decided(self, answer: Picked | Refused, now: float) -> list[Effect]:
        told = answer_text(answer)
        return self._note(told.word, told.text, self._exchange.decided(answer, now), now)

    def expired(self, now: float) -> list[Effect]:
        effects = self._exchange.expired(now)
        # a little later on paper, where times are rounded
        return self._note("expired", "", effects, now + 0.01) if effects else effects

    def half_closed(self, now: float) -> list[Effect]:
        return self._note("half_closed", "", self._exchange.half_closed(now), now)

    def cancelled(self, now: float) -> list[Effect]:
        return self._note("cancelled", "", self._exchange.cancelled(now), now)


@dataclass
class Answers:
    """A picker that answers as the case says."""

    case: Case | None = None
    addresses: dict[str, str] = field(default_factory=dict)

    async def pick(self, request: HttpRequest) -> Picked | Refused:
        assert self.case is not None
        await asyncio.sleep(self.case.pick_seconds)
        answer = await self.case.pick(request)
        if isinstance(answer, Refused):
            return answer
        real = ",".join(self.addresses.get(one, one) for one in answer.destination.split(","))
        return Picked(real, answer.booking_id, answer.set_headers, body=answer.body, reading=answer.reading)

    def responded(self, booking_id: str, response: Responded) -> None: ...

    def body_seen(self, booking_id: str) -> None: ...

    def over(self, booking_id: str, end: End) -> None: ...

    def logged(self, entries: Sequence[LogEntry]) -> None: ...


@dataclass
class Recorder:
    """Everything between a client and a worker, with a tap on the exchange."""

    answers: Answers
    server: Server
    notes: list[Event]
    urls: dict[str, str]
    session: aiohttp.ClientSession

    async def record(self, case: Case) -> Transcript:
        """Have one case happen."""
        self.notes.clear()
        self.answers.case = case
        async with asyncio.timeout(30):
            await case.client(Client(self.urls[case.name], self.session))
            await eventually(lambda: self.server.open_streams == 0 and bool(self.notes))
        self.answers.case = None
        head = {
            "about": case.about,
            "gateway": f"Envoy {ENVOY}",
            "request": case.request_mode,
            "response": case.response_mode,
            "hold": case.hold,
        }
        return Transcript({**head, **case.answers}, list(self.notes))


@asynccontextmanager
async def recording(cases: Sequence[Case]) -> AsyncIterator[Recorder]:
    """A recorder for these cases: a listener for each."""
    notes: list[Event] = []
    answers = Answers()
    admin, dead, *ports = free_ports(len(cases) + 2)
    names: dict[str, str] = {f"127.0.0.1:{port}": "127.0.0.1:8080" for port in ports}

    def clean(text: str) -> str:
        for real, shown in names.items():
            text = text.replace(real, shown)
        text = _UPSTREAM_TIME.sub(r'\g<1>0"', text)
        text = _ID.sub("00000000-0000-4000-8000-000000000000", text)
        return _DATE.sub("Thu, 01 Jan 1970 00:00:00 GMT", text)

    settings = ServingSettings(
        grpc_host="127.0.0.1", grpc_port=0, grpc_health_port=0, max_body_bytes=MAX_BODY
    )
    tapped: list[Any] = [
        mock.patch("picker.serving.streams.Exchange", lambda *a, **k: Tap(notes, clean, *a, **k)),
        mock.patch("picker.serving.grpcio_transport.read", Kept.read),
        mock.patch("picker.serving.native.extproc.read", Kept.read),
    ]
    for one in tapped:
        one.start()
    server = Server(settings, answers, hold=lambda: answers.case.hold if answers.case else "response")
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", worker_answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        worker = f"127.0.0.1:{runner.addresses[0][1]}"
        answers.addresses = {WORKER: worker, "127.0.0.1:8001": f"127.0.0.1:{dead}"}
        names |= {real: shown for shown, real in answers.addresses.items()}
        await server.start()
        server.set_ready(True)
        listeners = [_listener(case, port) for case, port in zip(cases, ports, strict=True)]
        pickers = [f"127.0.0.1:{server.port}"]
        config = envoy_config(
            listeners, pickers, admin, workers=list(answers.addresses.values()), access_log=False
        )
        for number, case in enumerate(cases):
            configure(config, number, case)
        urls = {case.name: f"http://127.0.0.1:{port}" for case, port in zip(cases, ports, strict=True)}
        with tempfile.TemporaryDirectory() as folder:
            async with running_envoy(Path(folder), config), aiohttp.ClientSession() as session:
                yield Recorder(answers, server, notes, urls, session)
    finally:
        await server.stop()
        await runner.cleanup()
        for one in tapped:
            one.stop()


def _listener(case: Case, port: int) -> Listener:
    return Listener(
        case.name,
        port,
        case.request_mode,
        case.response_mode,
        follows_list=case.walks > 0,
        retries=case.walks,
        attributes=not case.observed,  # how often it tries is chance where nobody decides
    )


def _says(stored: Transcript, fresh: Transcript) -> bool:
    """Whether a stored transcript still holds, but for times and cuts: then its file stays as it is."""
    same = stored.head == fresh.head and gist(stored) == gist(fresh)
    return same and written(replayed(stored)) == written(stored)


async def main(wanted: Sequence[str]) -> int:
    """Record the cases of these names, or all of them."""
    cases = [case for case in CASES if not wanted or case.name in wanted]
    began = time.monotonic()
    FOLDER.mkdir(exist_ok=True)
    async with recording(cases) as recorder:
        for case in cases:
            path = FOLDER / f"{case.name}.txt"
            fresh = await recorder.record(case)
            if not (path.exists() and _says(read(path), fresh)):
                path.write_text(written(fresh))
    if not wanted:
        for path in set(FOLDER.glob("*.txt")) - {FOLDER / f"{case.name}.txt" for case in cases}:
            path.unlink()
    sys.stdout.write(f"{len(cases)} transcripts in {time.monotonic() - began:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
