"""Poison: bytes that are no events on the subjects of real workers, and bodies that are no requests to the gateway.

Both are sent once, within the entering; nothing is left to heal.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import aiohttp
import msgspec
from nats.aio.client import Client
from prometheus_client.parser import text_string_to_metric_families

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, asked, life
from picker.events.records import MAX_EVENT_HASHES, SCHEMA
from picker.events.subjects import Subjects
from picker.sim.programs import POOL_NAME, POOL_NAMESPACE

CALL_SECONDS = 20.0
MIB = 1024 * 1024
_TIMEOUT = aiohttp.ClientTimeout(total=CALL_SECONDS)
_TOLD = ("picker_events_malformed", "picker_events_unknown_schema")
_JSON = {"content-type": "application/json"}
_CHAT, _PLAIN = "/v1/chat/completions", "/v1/completions"


def poisoned_events(seed: int) -> Mapping[str, bytes]:
    """Payloads that are no event, each wrong in its own way."""
    dice, pack = random.Random(seed), msgspec.msgpack.encode
    event = [SCHEMA, 1, 1, 1, "stored", [1, 2, 3], 0, False, ""]
    return {
        "noise": dice.randbytes(200),
        "nothing": b"",
        "json": b'{"schema": 1}',
        "cut short": pack(event)[:-9],
        "a map": pack({"schema": SCHEMA}),
        "nested deeply": b"\x91" * 5000 + b"\x90",
        "negative number": pack([SCHEMA, 1, 1, -1, "stored", []]),
        "unknown kind": pack([SCHEMA, 1, 1, 1, "explode", []]),
        "hashes that are text": pack([SCHEMA, 1, 1, 1, "stored", ["x"]]),
        "too many hashes": pack([SCHEMA, 1, 1, 1, "stored", list(range(MAX_EVENT_HASHES + 1))]),
        "schema of the far future": pack([SCHEMA + 99, *event[1:]]),
        "a large lump": dice.randbytes(MIB - 4096),
    }


def poisoned_bodies(seed: int, model: str) -> Mapping[str, tuple[str, bytes]]:
    """Path and body of requests that are none, or hard to bear, each in its own way."""
    dice, pack = random.Random(seed), msgspec.json.encode
    said = [{"role": "user", "content": "hello"}]
    return {
        "nothing": (_CHAT, b""),
        "noise": (_CHAT, dice.randbytes(1000)),
        "half a body": (_CHAT, pack({"model": model, "messages": said})[:-10]),
        "a list": (_CHAT, b"[1, 2, 3]"),
        "a number": (_PLAIN, b"1e400"),
        "nested deeply": (_CHAT, b'{"messages":' + b"[" * 100_000),
        "not UTF-8": (_PLAIN, b'{"model": "m", "prompt": "\xff\xfe"}'),
        "half a surrogate": (
            _PLAIN,
            b'{"model": "' + model.encode() + b'", "prompt": "\\ud800", "max_tokens": 1}',
        ),
        "no prompt": (_PLAIN, pack({"model": model})),
        "a prompt that is a number": (_PLAIN, pack({"model": model, "prompt": 7})),
        "messages without roles": (_CHAT, pack({"model": model, "messages": [{}, {}]})),
        "tokens that are none": (_PLAIN, pack({"model": model, "prompt": [-1, 2**70], "max_tokens": 1})),
        "a model that is a list": (_CHAT, pack({"model": ["m"], "messages": said})),
        "an unknown model": (_CHAT, pack({"model": "no-such-model", "messages": said, "max_tokens": 1})),
        "a long prompt": (_PLAIN, pack({"model": model, "prompt": "word " * 200_000, "max_tokens": 1})),
        "a body over every limit": (_PLAIN, pack({"model": model, "prompt": "x" * (40 * MIB)})),
    }


@dataclass(frozen=True, slots=True)
class PoisonEvents:
    """Everything in `poisoned_events`, on the subject of one worker's events."""

    target: str
    seed: int = 0
    kind: str = field(default="poison-events", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"publish {len(poisoned_events(0))} messages that are no events as those of {self.target}"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once every replica has counted what it was sent."""

        async def act() -> Evidence:
            payloads = poisoned_events(self.seed)
            before = await _counted(running)
            await _publish(running, self.target, payloads)
            after: dict[str, float] = {}

            async def counted() -> bool:
                nonlocal after
                after = await _counted(running)
                return all(after.get(name, 0) >= had + len(payloads) for name, had in before.items())

            await asked(
                counted, what=f"{len(payloads)} messages counted as no events by each of {', '.join(before)}"
            )
            return {
                "sent": len(payloads),
                "counted": {name: after[name] - had for name, had in before.items()},
            }

        return life(
            running, kind=self.kind, target=self.target, value={"seed": self.seed}, act=act, heal=_nothing
        )


@dataclass(frozen=True, slots=True)
class PoisonBodies:
    """Everything in `poisoned_bodies`, once each, to the gateway. The evidence says how each was answered."""

    model: str
    seed: int = 0
    target: str = field(default="envoy", init=False)
    kind: str = field(default="poison-bodies", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"send {len(poisoned_bodies(0, ''))} bodies that are no requests to the gateway"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once each was answered, or not within its time: status 0 then, for a check to judge."""

        async def act() -> Evidence:
            answers = {}
            async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
                for name, (path, body) in poisoned_bodies(self.seed, self.model).items():
                    answers[name] = await _status(session, running.cluster.envoy_url + path, body)
            if not any(answers.values()):
                raise InjectionError("the gateway answered nothing at all, so no replica has seen the bodies")
            return {"answers": answers}

        return life(
            running, kind=self.kind, target=self.target, value={"seed": self.seed}, act=act, heal=_nothing
        )


def poison_events(target: str, *, seed: int = 0) -> PoisonEvents:
    """Messages that are no events, on the subject of ``engine-0``; every replica must have counted each."""
    return PoisonEvents(target, seed)


def poison_bodies(*, model: str, seed: int = 0) -> PoisonBodies:
    """Bodies that are no requests; the fault's evidence has ``answers``: name -> HTTP status, 0 for none."""
    return PoisonBodies(model, seed)


async def _nothing() -> Evidence:
    return {}


async def _publish(running: Running, target: str, payloads: Mapping[str, bytes]) -> None:
    worker = next((each for each in running.cluster.workers if each.name == target), None)
    if worker is None:
        raise InjectionError(f"{target!r} is no worker of the topology")
    subject = Subjects(f"{POOL_NAMESPACE}/{POOL_NAME}").events(worker.address)
    client = Client()
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await client.connect([running.cluster.nats_url], allow_reconnect=False, connect_timeout=5)
            for payload in payloads.values():
                await client.publish(subject, payload)
            await client.flush()
    finally:
        await client.close()


async def _counted(running: Running) -> dict[str, float]:
    """How many messages each living replica has met that were no events."""
    found = {}
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        for replica in running.cluster.living_replicas():
            try:
                async with session.get(f"http://{replica.admin}/metrics") as response:
                    page = await response.text()
            except aiohttp.ClientError as error:
                raise OSError(f"{replica.name}: {error}") from error
            families = text_string_to_metric_families(page)
            found[replica.name] = sum(
                sample.value for family in families if family.name in _TOLD for sample in family.samples
            )
    return found


async def _status(session: aiohttp.ClientSession, url: str, body: bytes) -> int:
    try:
        async with session.post(url, data=io.BytesIO(body), headers=_JSON) as response:
            await response.read()
            return response.status
    except (aiohttp.ClientError, OSError, TimeoutError):
        return 0
