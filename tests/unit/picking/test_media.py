"""Equal pictures go where they went before: over exact leading blocks, and tails that replicas know of."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import orjson
import pytest
import pytest_asyncio

from picker.core.blocks import sequence_hashes
from picker.core.predicted import Predicted
from picker.events.records import SCHEMA, Event, encode
from picker.events.subjects import Subjects
from picker.events.subscriber import Subscriber
from picker.picking import Picking
from picker.requests.ask import TokenIds
from picker.requests.reading import read
from picker.serving.seam import End, HttpRequest, Picked, Responded
from picker.sim.model import DIRECTORY
from tests.unit.picking.world import A, B, C, World

POOL = "default/p"
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


class Pictures(World):
    """A world with a tokenizer, and events that are followed: of A, B and C, which hold nothing."""

    def __init__(self, **given: Any) -> None:
        super().__init__(tokenizers=f"*={DIRECTORY}", tokenize_budget_seconds=10, **given)
        self.subscriber = Subscriber(
            self.settings.events, POOL, self.index, clock=self.clock, on_stored=lambda _worker, _hashes: None
        )
        self.predicted = Predicted()
        self.sequence = 0
        for name in (A, B, C):
            self.subscriber.watch(name)
            self.tell(name, "cleared")
        self.picking = Picking(
            self.settings, pool=self.workers, index=self.index, bookings=self.desk, tokens=self.tokens,
            underway=self.underway, journal=self.journal, metrics=self.metrics, clock=self.clock,
            wall=lambda: 0.0, rng=random.Random(7), predicted=self.predicted, events=self.subscriber,
            tails=self.subscriber.tails,
        )  # fmt: skip

    def tell(self, worker: str, kind: Any, hashes: Any = ()) -> None:
        self.sequence += 1
        record = Event(SCHEMA, 1, 1, self.sequence, kind, list(hashes))
        self.subscriber._message(Subjects(POOL).events(worker), encode(record))

    async def send(self, path: str, body: dict[str, Any]) -> tuple[str, int]:
        """Who got it, and how many of its blocks that one was believed to hold. It is over at once."""
        raw = orjson.dumps({"model": "m", **body})
        answer = await self.picking.decide(HttpRequest({":path": path, ":method": "POST"}, raw))
        assert isinstance(answer, Picked), answer
        decision = self.journal.why(answer.booking_id)[0]
        self.picking.over(answer.booking_id, End.PROVEN)
        held = {each["worker"]: each["overlap_blocks"]["device"] for each in decision["candidates"]}
        return answer.destination, held[answer.destination]

    async def known(self, path: str, body: dict[str, Any]) -> list[int]:
        """The hashes of the leading blocks, as an engine announces them."""
        told = await self.tokens.ids(read(path, {}, orjson.dumps({"model": "m", **body})), 10)
        assert isinstance(told, TokenIds)
        return sequence_hashes(told.prompts[0], 4)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[Pictures]:
    made = Pictures(nats_url="nats://127.0.0.1:1")
    task = asyncio.create_task(made.tokens.run())
    await made.tokens.loaded()
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    made.close()


def seen(
    data: str, *more: dict[str, Any], system: str = "You look at pictures, and say what they show."
) -> Any:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    content = [{"type": "text", "text": "What is this?"}, picture]
    turns = [{"role": "user", "content": content}, *more]
    return {"messages": [{"role": "system", "content": system}, *turns]}


async def test_a_conversation_with_a_picture_goes_on_where_it_began(world: Pictures) -> None:
    first = seen("AAAA")
    worker, held = await world.send(CHAT, first)
    assert held == 0
    world.tell(worker, "stored", await world.known(CHAT, first))
    follows = seen(
        "AAAA", {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Its colour?"}
    )
    again, held = await world.send(CHAT, follows)
    assert again == worker
    assert held > 512 // 4, "the picture's blocks are among them"


async def test_another_picture_matches_the_words_before_it_alone(world: Pictures) -> None:
    first = seen("AAAA")
    worker, _ = await world.send(CHAT, first)
    known = await world.known(CHAT, first)
    world.tell(worker, "stored", known)
    again, held = await world.send(CHAT, seen("BBBB"))
    assert (again, held) == (worker, len(known))


async def test_an_equal_picture_sent_as_anthropics_block_is_the_same(world: Pictures) -> None:
    first = seen("AAAA")
    worker, _ = await world.send(CHAT, first)
    world.tell(worker, "stored", await world.known(CHAT, first))
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    body = {
        "system": first["messages"][0]["content"],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, block]}],
    }
    again, held = await world.send(MESSAGES, body)
    assert again == worker
    assert held > 512 // 4


async def test_a_tail_counts_only_behind_all_that_stands_before_it(world: Pictures) -> None:
    first = seen("AAAA")
    worker, _ = await world.send(CHAT, first)
    known = await world.known(CHAT, first)
    world.tell(worker, "stored", known)
    world.clock.now += 60  # nothing is predicted any more
    world.tell(worker, "removed", known[-1:])
    _, held = await world.send(CHAT, first)
    assert held < len(known)


async def test_an_engine_that_forgets_everything_takes_the_tails_with_it(world: Pictures) -> None:
    worker, _ = await world.send(CHAT, seen("AAAA"))
    assert world.subscriber.tails.held(worker)
    world.tell(worker, "cleared")
    assert not world.subscriber.tails.held(worker)


@pytest.mark.parametrize("more", [{"cache_salt": "tenant"}, {"model": "poet"}], ids=["salt", "adapter"])
async def test_salts_and_adapters_keep_pictures_apart(more: dict[str, Any]) -> None:
    world = Pictures(nats_url="nats://127.0.0.1:1", loras="poet", base_model="m")
    task = asyncio.create_task(world.tokens.run())
    await world.tokens.loaded()
    try:
        body = seen("AAAA", system="")
        await world.send(CHAT, body)
        tails = {name: world.subscriber.tails.held(name) for name in (A, B, C)}
        await world.send(CHAT, {**body, **more})
        fresh = [world.subscriber.tails.held(name) - tails[name] for name in (A, B, C)]
        assert sum(map(len, fresh)) == len(tails[A] | tails[B] | tails[C])
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        world.close()


async def test_tails_are_never_predicted_so_no_event_is_missed_for_them(world: Pictures) -> None:
    first = seen("AAAA")
    worker, _ = await world.send(CHAT, first)
    known = await world.known(CHAT, first)
    assert world.predicted.counts.predicted == len(known)
    world.predicted.confirmed(worker, known)
    world.predicted.expire(world.clock.now + 3600)
    assert world.predicted.counts.unconfirmed == 0


async def test_a_text_has_no_tail(world: Pictures) -> None:
    worker, _ = await world.send(CHAT, {"messages": [{"role": "user", "content": "Hello there, general."}]})
    assert not world.subscriber.tails.held(worker)


async def test_workers_without_events_learn_tails_where_they_learn_at_all() -> None:
    for approximate in (True, False):
        world = Pictures(approximate=approximate)
        for name in (A, B, C):
            world.subscriber.unwatch(name)
            world.subscriber.watch(name)
        task = asyncio.create_task(world.tokens.run())
        await world.tokens.loaded()
        try:
            worker, _ = await world.send(CHAT, seen("AAAA"))
            again, held = await world.send(CHAT, seen("AAAA"))
            assert (again == worker and held > 512 // 4) is approximate
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            world.close()


async def test_what_an_engine_found_of_a_picture_is_not_held_against_the_index(world: Pictures) -> None:
    first = seen("AAAA")
    worker, _ = await world.send(CHAT, first)
    world.tell(worker, "stored", await world.known(CHAT, first))
    raw = orjson.dumps({"model": "m", **first})
    request = HttpRequest({":path": CHAT, ":method": "POST"}, raw, response_shown=True)
    answer = await world.picking.decide(request)
    assert isinstance(answer, Picked)
    assert answer.reading is not None
    answer.reading.begin(Responded(200, worker, content_type="application/json"))
    told = {"prompt_tokens": 900, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 800}}
    answer.reading.piece(orjson.dumps({"usage": told}), end=True)
    counts = world.picking.answers.counts
    assert (counts.usage_told, counts.cached_tokens_told, counts.cached_tokens_predicted) == (1, 0, 0)
