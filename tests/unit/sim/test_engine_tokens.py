from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from picker.sim.engine.tokens import Tokenizer, TokenizerError, translate
from picker.sim.model import DIRECTORY
from picker.sim.model.build import SPECIAL, train
from picker.sim.words import WORDS

OURS = Tokenizer(DIRECTORY)
THEIRS = Library.from_file(str(DIRECTORY / "tokenizer.json"))


def _known(letter: str) -> bool:
    """Python's Unicode tables may be older than the library's: leave out what is not assigned here."""
    return unicodedata.category(letter) not in ("Cn", "Cs", "Co")


letters = st.characters(exclude_categories=("Cn", "Cs", "Co")).filter(_known)
pieces = st.one_of(
    st.text(letters, max_size=12),
    st.sampled_from(WORDS).map(lambda word: " " + word),
    st.sampled_from(WORDS).map(str.capitalize),
    st.sampled_from(SPECIAL),
    st.sampled_from(
        (
            " ",
            "  ",
            "\n",
            "\r\n\t",
            "'s",
            "'LL",
            "'\u017f",
            "\u00a0",
            "\x1c",
            "\u2028",
            "1234",
            "...",
            "\n\n  x",
        )
    ),
)
texts = st.lists(pieces, max_size=30).map("".join)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_ids_are_those_of_the_tokenizers_library(text: str) -> None:
    assert OURS.encode(text) == THEIRS.encode(text).ids


@pytest.mark.parametrize("word", ["ab" * 4000, "x" * 5000, "\u4f60" * 3000, " " * 3000 + "x", "'" * 2000])
def test_ids_of_one_long_word_are_those_of_the_library(word: str) -> None:
    assert OURS.encode(word) == THEIRS.encode(word).ids


@given(texts)
def test_text_comes_back_from_its_ids(text: str) -> None:
    assert OURS.decode(OURS.encode(text)) == text


@given(st.lists(st.sampled_from(OURS.words()), max_size=50))
def test_plain_words_in_a_row_encode_to_themselves(ids: list[int]) -> None:
    assert OURS.encode(OURS.decode(ids)) == ids


def test_there_are_plain_words_enough_to_speak() -> None:
    assert len(OURS.words()) > 500


def test_the_committed_tokenizer_is_what_the_script_trains() -> None:
    assert (DIRECTORY / "tokenizer.json").read_text(encoding="utf-8") == train()


def test_the_model_directory_is_small() -> None:
    assert sum(path.stat().st_size for path in DIRECTORY.iterdir() if path.is_file()) < 300_000


def test_merges_written_as_text_are_read_too(tmp_path: Path) -> None:
    data = json.loads((DIRECTORY / "tokenizer.json").read_text(encoding="utf-8"))
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    data["normalizer"] = {"type": "NFC"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    text = "Stra\u00dfe cafe\u0301 over the water"
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(tmp_path).encode(text) == library.encode(text).ids


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("model", "type"), "Unigram", "byte-level BPE"),
        (("model", "byte_fallback"), True, "byte-level BPE"),
        (("normalizer",), {"type": "Lowercase"}, "Lowercase"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "Whitespace"),
        (("post_processor",), {"type": "TemplateProcessing"}, "TemplateProcessing"),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused_by_name(
    tmp_path: Path, path: tuple[str, ...], value: object, named: str
) -> None:
    data = json.loads((DIRECTORY / "tokenizer.json").read_text(encoding="utf-8"))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(TokenizerError, match=named):
        Tokenizer(tmp_path)


def test_a_pattern_that_cannot_be_spelled_out_is_refused() -> None:
    with pytest.raises(TokenizerError, match="Lu"):
        translate(r"\p{Lu}+")
    with pytest.raises(TokenizerError, match="inside a class"):
        translate(r"[\S]+")
