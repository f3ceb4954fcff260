"""Token ids within the budget, and every way in which there are none."""

from __future__ import annotations

import asyncio
import json
import threading
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from picker.requests import tokenising
from picker.requests import tokens as module
from picker.requests.ask import Ask, Chat, Ids, TokenIds, Untold, Why
from picker.requests.media import identity, words
from picker.requests.reading import read
from picker.requests.tokens import Begun, Tokens, parse_tokenizers
from picker.requests.vocabulary import Steps, Vocabulary
from picker.settings import RequestSettings
from tests.unit.requests.conftest import SPECIALS, byte_level, save

PATIENT = 30.0
HELLO = [{"role": "user", "content": "Hello there"}]


def completion(prompt: Any, model: str = "m", **fields: Any) -> Ask:
    return read("/v1/completions", {}, json.dumps({"model": model, "prompt": prompt, **fields}).encode())


def chat(messages: Any = HELLO, model: str = "m", **fields: Any) -> Ask:
    return read(
        "/v1/chat/completions", {}, json.dumps({"model": model, "messages": messages, **fields}).encode()
    )


@asynccontextmanager
async def running(tokenizers: str, **settings: Any) -> AsyncIterator[Tokens]:
    mine = Tokens(RequestSettings(tokenizers=tokenizers, **settings))
    task = asyncio.create_task(mine.run())
    try:
        await mine.loaded()
        yield mine
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        mine.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENT):
        while not true():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.01)


class Gate:
    """Holds tokenising threads at the door, and tells how many came."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.came = threading.Semaphore(0)
        self.texts: list[str] = []

    async def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.came.acquire, timeout=PATIENT)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    mine = Gate()
    encode = Vocabulary.encode

    def held(self: Vocabulary, text: str, *, special: bool, into: Ids) -> Steps:
        mine.texts.append(text)
        mine.came.release()
        assert mine.open.wait(PATIENT)
        return (yield from encode(self, text, special=special, into=into))

    monkeypatch.setattr(Vocabulary, "encode", held)
    monkeypatch.setattr(tokenising, "AT_ONCE_TEXT", -1)  # the gate holds threads, and would hold the loop
    yield mine
    mine.open.set()


async def test_a_completion_is_framed_and_a_chat_is_not(
    model_directory: Path, ids_of: Callable[..., list[int]]
) -> None:
    async with running(f"m={model_directory}") as mine:
        told = await mine.ids(completion("Hello there"), PATIENT)
        assert told == TokenIds((array("I", ids_of("Hello there", special=True)),))
        told = await mine.ids(chat(), PATIENT)
        text = "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"
        assert told == TokenIds((array("I", ids_of(text)),))
        assert mine.counts.told == 2
        assert mine.counts.tokens == len(ids_of("Hello there", special=True)) + len(ids_of(text))


async def test_every_prompt_of_a_list_is_told_apart(
    model_directory: Path, ids_of: Callable[..., list[int]]
) -> None:
    async with running(f"m={model_directory}") as mine:
        told = await mine.ids(completion(["one", "two"], add_special_tokens=False), PATIENT)
        assert told == TokenIds((array("I", ids_of("one")), array("I", ids_of("two"))))


async def test_token_ids_need_no_tokenizer() -> None:
    async with running("") as mine:
        assert await mine.ids(completion([[1, 2], [3]])) == TokenIds((array("I", [1, 2]), array("I", [3])))


async def test_a_picture_leaves_the_leading_tokens(
    model_directory: Path, ids_of: Callable[..., list[int]]
) -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    async with running(f"m={model_directory}") as mine:
        told = await mine.ids(chat([*HELLO, {"role": "user", "content": [image]}]), PATIENT)
        text = "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>user\n"
        behind = [*words(identity(image)), *ids_of("<|im_end|>\n<|im_start|>assistant\n")]
        assert told == TokenIds((array("I", ids_of(text)),), complete=False, behind=array("I", behind))
        assert mine.counts.partly == 1


async def test_the_tokenizer_is_found_by_model_then_base_model_then_star(
    tmp_path: Path, model_directory: Path
) -> None:
    other = save(tmp_path, byte_level(specials=(*SPECIALS, "Hello")), template=None)
    settings = f"base={model_directory},*={other}"
    async with running(settings) as mine:
        base = await mine.ids(completion("Hello", "base"), PATIENT)
        poem = Ask(api=chat().api, model="poet", base_model="base", lora="poet", prompts=("Hello",))
        assert await mine.ids(poem, PATIENT) == base
        assert await mine.ids(completion("Hello", "another"), PATIENT) != base


async def test_why_there_are_no_ids_is_told_and_counted(tmp_path: Path, model_directory: Path) -> None:
    bare = save(tmp_path / "bare", byte_level(), template=None)
    picky = save(tmp_path / "picky", byte_level(), template="{{ raise_exception('no') }}")
    settings = f"m={model_directory},bare={bare},picky={picky},gone={tmp_path / 'gone'}"
    async with running(settings) as mine:
        for ask, why in (
            (completion("x", "unknown"), Why.NO_TOKENIZER),
            (chat(model="bare"), Why.NO_TEMPLATE),
            (chat(model="picky"), Why.TEMPLATE),
            (completion("x", "gone"), Why.BROKEN),
            (read("/v1/audio/speech", {}, b"{}"), Why.UNREAD),
            (read("/v1/completions", {}, None), Why.UNREAD),
        ):
            assert await mine.ids(ask, PATIENT) == Untold(why)
            assert getattr(mine.counts, why.value) >= 1
        assert mine.counts.unread == 2
        assert mine.counts.load_failures == 1
        states = {model["model"]: model for model in mine.status()["models"]}
        assert states["m"]["state"] == "ready"
        assert states["m"]["chat_template"] is True
        assert states["bare"]["chat_template"] is False
        assert states["gone"]["state"] == "broken"
        assert "does not exist" in states["gone"]["detail"]


def test_every_reason_has_its_counter() -> None:
    assert {why.value for why in Why} <= set(module.Counts.__dataclass_fields__)


async def test_before_it_is_loaded_a_model_is_routed_by_load(model_directory: Path) -> None:
    mine = Tokens(RequestSettings(tokenizers=f"m={model_directory}"))
    assert await mine.ids(completion("x")) == Untold(Why.LOADING)
    assert mine.status()["models"][0]["state"] == "loading"
    mine.close()


async def test_files_that_come_late_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    async with running(f"m={tmp_path / 'm'}") as mine:
        assert await mine.ids(completion("x")) == Untold(Why.BROKEN)
        save(tmp_path / "m", byte_level())
        await until(lambda: mine.status()["models"][0]["state"] == "ready")
        assert isinstance(await mine.ids(completion("x"), PATIENT), TokenIds)
        assert mine.status()["models"][0]["detail"] == ""


async def test_past_the_budget_a_request_is_told_so_and_its_work_warms_the_cache(
    model_directory: Path, gate: Gate
) -> None:
    async with running(f"m={model_directory}") as mine:
        assert await mine.ids(chat(), 0.02) == Untold(Why.LATE)
        assert mine.counts.late == 1
        await gate.wait_for(1)
        gate.open.set()
        await until(lambda: not mine.status()["in_flight"])
        missed = mine.counts.pieces_missed
        assert missed > 0
        assert isinstance(await mine.ids(chat(), PATIENT), TokenIds)
        assert mine.counts.pieces_missed == missed


async def test_past_the_budget_the_leading_ids_known_by_then_are_told(
    model_directory: Path, ids_of: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, leave = threading.Event(), threading.Event()
    head = ids_of("<|im_start|>user\nHello there<|im_end|>")

    def halfway(self: Vocabulary, text: str, *, special: bool, into: Ids) -> Steps:
        into.extend(head)
        reached.set()
        assert leave.wait(PATIENT)
        yield 1
        return True

    monkeypatch.setattr(Vocabulary, "encode", halfway)
    monkeypatch.setattr(tokenising, "AT_ONCE_TEXT", -1)
    async with running(f"m={model_directory}") as mine:
        asking = asyncio.create_task(mine.ids(chat(), 0.3))
        assert await asyncio.to_thread(reached.wait, PATIENT)
        assert await asking == TokenIds((array("I", head),), complete=False)
        leave.set()
        assert mine.counts.partly == 1


async def test_past_the_queues_bound_a_request_is_busy_at_once(model_directory: Path, gate: Gate) -> None:
    async with running(f"m={model_directory}", tokenize_threads=1, tokenize_queue=2) as mine:
        asking = [asyncio.create_task(mine.ids(completion(f"text {n}"), PATIENT)) for n in range(3)]
        await gate.wait_for(1)
        assert await mine.ids(completion("one more"), PATIENT) == Untold(Why.BUSY)
        gate.open.set()
        assert all(isinstance(told, TokenIds) for told in await asyncio.gather(*asking))
        assert isinstance(await mine.ids(completion("one more"), PATIENT), TokenIds)
        assert mine.counts.busy == 1


async def test_what_waited_past_its_budget_is_never_started(model_directory: Path, gate: Gate) -> None:
    async with running(f"m={model_directory}", tokenize_threads=1, tokenize_queue=8) as mine:
        first = asyncio.create_task(mine.ids(completion("first"), PATIENT))
        await gate.wait_for(1)
        assert await mine.ids(completion("second"), 0.01) == Untold(Why.LATE)
        gate.open.set()
        await first
        assert isinstance(await mine.ids(completion("third"), PATIENT), TokenIds)
        assert gate.texts == ["first", "third"]


async def test_a_client_that_leaves_leaves_nothing_behind(model_directory: Path, gate: Gate) -> None:
    async with running(f"m={model_directory}", tokenize_threads=1, tokenize_queue=1) as mine:
        asking = [asyncio.create_task(mine.ids(completion(f"text {n}"), PATIENT)) for n in range(2)]
        await gate.wait_for(1)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        gate.open.set()
        await until(lambda: not mine.status()["in_flight"])
        assert gate.texts == ["text 0"]
        assert isinstance(await mine.ids(completion("x"), PATIENT), TokenIds)


async def test_the_loop_goes_on_while_a_long_prompt_is_tokenised(model_directory: Path) -> None:
    long = " ".join(f"word{n}" for n in range(40_000))
    async with running(f"m={model_directory}") as mine:
        asking = asyncio.create_task(mine.ids(completion(long), PATIENT))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert isinstance(asking.result(), TokenIds)
        assert turns > 3


LINES = "\n".join(f"The quick brown fox number {number} jumps over it" for number in range(14_000))
BLOB = "".join(chr(ord("a") + number * number % 23) for number in range(500_000))


@pytest.mark.parametrize(
    ("threads", "text"), [(1, LINES), (2, LINES), (2, BLOB)], ids=["1", "2", "2, unbroken"]
)
async def test_short_prompts_are_told_in_time_while_prompts_of_128k_tokens_are_tokenised(
    model_directory: Path, threads: int, text: str
) -> None:
    async with running(f"m={model_directory}", tokenize_threads=threads) as mine:
        long = [asyncio.create_task(mine.ids(completion(f"{n} {text}"), PATIENT)) for n in range(5)]
        await asyncio.sleep(0.05)
        told = [await mine.ids(completion(f"a short prompt {n}"), 5.0) for n in range(3)]
        assert sum(task.done() for task in long) < len(long) - 1
        assert all(isinstance(each, TokenIds) and each.complete for each in told)
        for whole in await asyncio.gather(*long):
            assert isinstance(whole, TokenIds)
            assert whole.complete
            assert len(whole.prompts[0]) > 128_000


async def test_leading_ids_of_a_long_prompt_are_told_past_the_budget(
    model_directory: Path, ids_of: Callable[..., list[int]]
) -> None:
    async with running(f"m={model_directory}", tokenize_threads=1) as mine:
        while isinstance(told := await mine.ids(completion(LINES), 0.1), Untold):
            assert told == Untold(Why.LATE)  # a busy machine: what was done is in the cache
        assert list(told.prompts[0]) == ids_of(LINES, special=True)[: len(told.prompts[0])]


async def test_long_prompts_leave_room_in_the_queue_to_short_ones(model_directory: Path, gate: Gate) -> None:
    async with running(f"m={model_directory}", tokenize_threads=1, tokenize_queue=3) as mine:
        long = [asyncio.create_task(mine.ids(completion(f"{n} {BLOB}"), 5)) for n in range(4)]
        await gate.wait_for(1)
        short = asyncio.create_task(mine.ids(completion("short"), PATIENT))
        await until(lambda: mine.status()["in_flight"] == 3)
        gate.open.set()
        assert isinstance(await short, TokenIds)
        assert [told for told in await asyncio.gather(*long) if isinstance(told, Untold)] == [
            Untold(Why.BUSY)
        ] * 2


async def test_a_text_too_long_is_not_tokenised(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenising, "MAX_TEXT", 100)
    async with running(f"m={model_directory}") as mine:
        assert await mine.ids(completion("x" * 101), PATIENT) == Untold(Why.TOO_LONG)
        assert await mine.ids(chat([{"role": "user", "content": "x" * 101}]), PATIENT) == Untold(Why.TEMPLATE)


async def test_a_tokenizer_that_fails_is_counted(
    model_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_options: Any) -> bool:
        raise RuntimeError("broken inside")

    monkeypatch.setattr(Vocabulary, "encode", fail)
    monkeypatch.setattr(Vocabulary, "at_once", fail)
    async with running(f"m={model_directory}") as mine:
        for failed, text in enumerate(("x", "x" * (tokenising.AT_ONCE_TEXT + 8)), start=1):
            assert await mine.ids(completion(text), PATIENT) == Untold(Why.FAILED)
            assert mine.counts.failed == failed
        assert mine.status()["in_flight"] == 0


async def test_a_text_that_is_no_unicode_fails_for_itself_alone(model_directory: Path) -> None:
    async with running(f"m={model_directory}") as mine:
        lone = Ask(api=chat().api, model="m", prompts=("\ud800",))
        assert await mine.ids(lone, PATIENT) == Untold(Why.FAILED)
        assert isinstance(await mine.ids(completion("x"), PATIENT), TokenIds)


async def test_after_the_close_asks_are_answered_at_once(model_directory: Path, gate: Gate) -> None:
    async with running(f"m={model_directory}", tokenize_threads=1) as mine:
        first = asyncio.create_task(mine.ids(completion("first"), PATIENT))
        await gate.wait_for(1)
        queued = asyncio.create_task(mine.ids(completion("second"), PATIENT))
        await asyncio.sleep(0)
        mine.close()
        assert await mine.ids(completion("third"), PATIENT) == Untold(Why.CLOSED)
        assert await queued == Untold(Why.CLOSED)
        gate.open.set()
        assert await first == Untold(Why.CLOSED)
        assert mine.status()["in_flight"] == 0


def test_pairs_of_models_and_directories_are_read() -> None:
    assert parse_tokenizers("") == {}
    assert parse_tokenizers(" a = /x , */y=/z/w ,*=/d") == {
        "a": Path("/x"),
        "*/y": Path("/z/w"),
        "*": Path("/d"),
    }


@pytest.mark.parametrize("text", ["a", "a=", "=/x", "a=/x,a=/y"])
def test_a_wrong_pair_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"'a|'=/x'"):
        parse_tokenizers(text)


def test_chats_and_texts_may_stand_side_by_side() -> None:
    assert isinstance(chat().prompts[0], Chat)


async def test_what_stands_for_media_is_bounded(model_directory: Path) -> None:
    images = [{"type": "image_url", "image_url": {"url": str(number)}} for number in range(300)]
    async with running(f"m={model_directory}") as mine:
        told = await mine.ids(chat([{"role": "user", "content": images}]), PATIENT)
    assert isinstance(told, TokenIds)
    assert len(told.behind) == tokenising.MAX_BEHIND


async def test_a_short_prompt_is_told_at_once(
    model_directory: Path, ids_of: Callable[..., list[int]]
) -> None:
    async with running(f"m={model_directory}") as mine:
        told = mine.known(completion("Hello there", add_special_tokens=False))
        assert told == TokenIds((array("I", ids_of("Hello there")),))
        assert isinstance(mine.known(chat()), TokenIds)
        assert mine.counts.told == 2


async def test_few_tools_and_variables_are_rendered_at_once(model_directory: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with running(f"m={model_directory}") as mine:
        for fields in ({"tools": [tool]}, {"chat_template_kwargs": {"enable_thinking": False}}):
            ask = chat(**fields)
            told = mine.known(ask)
            assert isinstance(told, TokenIds)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tokenising, "AT_ONCE_BESIDE", 0)
                assert isinstance(mine.known(ask), Begun)
                assert await mine.ids(ask, PATIENT) == told
            assert told != mine.known(chat())


async def test_a_body_with_much_beside_its_text_is_not_looked_through_on_the_loop(
    model_directory: Path,
) -> None:
    plain, beside = {"enable_thinking": False}, {"metadata": "x" * 40_000}
    long = [{"role": "user", "content": "x" * 40_000}]
    async with running(f"m={model_directory}") as mine:
        assert isinstance(mine.known(chat(chat_template_kwargs=plain)), TokenIds)
        assert isinstance(mine.known(chat(chat_template_kwargs=plain, **beside)), Begun)
        assert isinstance(mine.known(chat(**beside)), TokenIds)
        assert not chat(long, chat_template_kwargs=plain).bulky


@pytest.mark.parametrize(
    "beside",
    [
        {"tool_calls": [{"function": {"name": "f", "arguments": '{"city": "' + "x" * 40_000 + '"}'}}]},
        {"reasoning_content": "x" * 40_000},
        {"content": [{"type": "text", "text": ""}] * 2_000},
    ],
    ids=["calls", "reasoning", "parts"],
)
async def test_much_in_messages_beside_their_text_is_not_rendered_on_the_loop(
    model_directory: Path, beside: dict[str, Any]
) -> None:
    ask = chat([{"role": "assistant", "content": "", **beside}])
    assert ask.bulky
    async with running(f"m={model_directory}") as mine:
        assert isinstance(mine.known(ask), Begun)
        assert isinstance(await mine.ids(ask, PATIENT), TokenIds)


async def test_tools_that_a_template_writes_again_and_again_are_written_beside_the_loop(
    tmp_path: Path,
) -> None:
    template = "{% for message in messages %}{{ message.content }}{{ tools | tojson }}{% endfor %}"
    directory = save(tmp_path / "model", byte_level(), template=template)
    tools = [{"type": "function", "function": {"name": "f" * 8_000}}]
    async with running(f"m={directory}") as mine:
        few, many = (chat([{"role": "user", "content": "a"}] * count, tools=tools) for count in (2, 40))
        assert not isinstance(mine.known(few), Untold)
        begun = mine.known(many)
        assert isinstance(begun, Begun)
        assert begun.job is not None
        assert begun.job.prompts is None
        assert isinstance(await mine.ids(many, PATIENT, begun), TokenIds)


async def test_a_long_prompt_is_told_at_once_where_all_but_a_little_is_known(model_directory: Path) -> None:
    head = [{"role": "user", "content": "word " * 2_000}, {"role": "assistant", "content": "yes"}]
    async with running(f"m={model_directory}") as mine:
        first, again = (chat([*head, {"role": "user", "content": f"and {n}"}]) for n in range(2))
        begun = mine.known(first)
        assert isinstance(begun, Begun), "too much of it is new"
        assert mine.counts.told == 0
        told = await mine.ids(first, PATIENT, begun)
        assert told == await mine.ids(first, PATIENT)
        assert isinstance(mine.known(again), TokenIds)
        assert mine.counts.told == 3


async def test_what_was_begun_and_given_up_leaves_nothing_behind(model_directory: Path) -> None:
    async with running(f"m={model_directory}") as mine:
        begun = mine.known(completion("word " * 2_000))
        assert isinstance(begun, Begun)
        del begun
        assert mine.status()["in_flight"] == 0


@pytest.mark.parametrize(
    "ask",
    [
        completion("x" * (tokenising.AT_ONCE_TEXT + 8)),
        chat(HELLO * (tokenising.AT_ONCE_MESSAGES + 1)),
        chat(tools=[{"type": "function", "function": {"name": "f" * tokenising.AT_ONCE_BESIDE}}]),
        chat(tools=[{"type": "function", "function": {"name": "f"}}] * 500),
        chat(tools=[{"function": {"name": "f", "parameters": json.loads("[" * 500 + "]" * 500)}}]),
        chat(chat_template_kwargs={"thinking": "x" * tokenising.AT_ONCE_BESIDE}),
        chat(documents=[{"text": "x" * tokenising.AT_ONCE_BESIDE}]),
        chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
    ],
    ids=["long", "many messages", "tools", "many tools", "nested", "variables", "documents", "media"],
)
async def test_what_may_take_long_is_never_looked_at_on_the_loop(model_directory: Path, ask: Ask) -> None:
    async with running(f"m={model_directory}") as mine:
        assert isinstance(mine.known(ask), Begun)
        assert isinstance(await mine.ids(ask, PATIENT), TokenIds)
        assert isinstance(mine.known(ask), Begun)
