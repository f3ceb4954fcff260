"""Texts encoded word by word have the ids of the whole text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.requests import words as module
from picker.requests.coder import JsonCoder
from picker.requests.pieces import PLACES, Slicer
from picker.requests.vocabulary import Vocabulary
from picker.requests.words import Words
from tests.unit.requests.conftest import SPECIALS, byte_level, metaspace

TOKENIZERS = {"framed": byte_level(framed=True), "plain": byte_level(), "metaspace": metaspace()}
VOCABULARIES = {name: Vocabulary(JsonCoder(each), None, None) for name, each in TOKENIZERS.items()}
TEXTS = st.lists(
    st.sampled_from(
        [*SPECIALS, " ", "  ", "\n", " the", "fox", " jumps", " a", "A", ".", "é", "日本", "'s", "1", "\t"]
    )
    | st.text(max_size=8),
    max_size=60,
).map("".join)
LONG = 10_000_000


class Letters:
    """Encodes letter by letter, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        self.asked += texts
        return [list(map(ord, text)) for text in texts]


@given(st.text(alphabet="aB .é\n1", max_size=80) | TEXTS)
def test_words_are_what_stands_between_the_places(text: str) -> None:
    between = next(place for place in PLACES if place.name == "words")
    assert module._WORD.findall(text) == list(Slicer((between,), 1).cut(text))


@given(texts=st.lists(TEXTS, min_size=1, max_size=4), name=st.sampled_from(sorted(TOKENIZERS)))
def test_ids_of_words_are_the_ids_of_the_whole_text(texts: list[str], name: str) -> None:
    mine = VOCABULARIES[name]
    assert mine._words is not None
    expected = [TOKENIZERS[name].encode(text, add_special_tokens=False).ids for text in texts]
    for _ in range(2):
        told = mine._words.ids(texts, LONG)
        assert told is not None
        assert list(map(list, told)) == expected
        for text, ids in zip(texts, expected, strict=True):
            at_once = mine.at_once(text, special=False, most=LONG)
            assert at_once is not None
            assert list(at_once) == ids


@given(
    st.lists(st.lists(st.text(alphabet="ab c", max_size=90), min_size=1, max_size=3), max_size=5),
    st.integers(1, 5),
)
def test_however_few_words_are_learned_or_remembered_ids_are_right(texts: list[list[str]], few: int) -> None:
    letters = Letters()
    mine = Words(letters.encode)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LEARNED", few)
        patch.setattr(module, "MOST_WORDS", few)
        for each in texts:
            assert mine.ids(each, LONG) == [array("I", map(ord, text)) for text in each]
            assert len(mine) <= few


def test_an_empty_text_has_no_ids() -> None:
    for texts in ([""], ["", "x(1)=y.z[2:3];"], []):
        assert Words(Letters().encode).ids(texts, 100) == [array("I", map(ord, text)) for text in texts]


def test_a_word_is_encoded_once() -> None:
    letters = Letters()
    mine = Words(letters.encode)
    mine.ids(["the quick brown fox"], 100)
    assert letters.asked == ["the", " quick", " brown", " fox"]
    mine.ids(["the slow brown fox", "the quick dog"], 100)
    assert letters.asked[4:] == [" slow", " dog"]


def test_many_new_words_are_encoded_in_few_goes_and_some_of_them_learned() -> None:
    letters = Letters()
    mine = Words(letters.encode)
    text = " ".join("".join(pair) for pair in product("abcdefghij", repeat=2))
    assert mine.ids([text], 1_000) == [array("I", map(ord, text))]
    assert len(letters.asked) == module.LEARNED + 1
    assert "".join(letters.asked) == text
    assert len(mine) == module.LEARNED


def test_a_word_too_long_is_not_remembered() -> None:
    letters = Letters()
    mine = Words(letters.encode)
    short, long = "c" * (module.LONGEST - 1), "b" * module.LONGEST
    mine.ids([f"an{' an' * 30} {long} {short}"], 1_000)
    asked = len(letters.asked)
    mine.ids([f"an{' an' * 30} {short}"], 1_000)
    assert len(letters.asked) == asked
    mine.ids([f"an{' an' * 30} {long}"], 1_000)
    assert letters.asked[asked:] == [f" {long}"]


def test_what_is_no_prose_is_encoded_in_one_go() -> None:
    letters = Letters()
    text = "x(1)=y.z[2:3]; " * 20
    assert Words(letters.encode).ids([text, "<|a|>\n"], 1_000) == [
        array("I", map(ord, text)),
        array("I", map(ord, "<|a|>\n")),
    ]
    assert letters.asked == [text, "<|a|>\n"]


def test_words_that_are_known_are_not_counted_as_new() -> None:
    mine = Words(Letters().encode)
    assert mine.ids(["some words"], 9) is None
    assert mine.ids(["some words"], 10) is not None
    assert mine.ids(["some words", "some more"], 8) is not None
    assert mine.ids(["some", " more words yet"], 3) is None


def test_a_text_far_longer_than_may_be_encoded_is_not_even_split() -> None:
    mine = Vocabulary(JsonCoder(byte_level()), None, None)
    text = "a" + " a" * 200
    assert mine.at_once(text[:399], special=False, most=100) is None
    assert mine.at_once("a a", special=False, most=100) is not None
    assert mine.at_once(text[:399], special=False, most=100) is not None
    assert mine.at_once(text, special=False, most=100) is None
