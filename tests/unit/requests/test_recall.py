"""What is remembered of texts changes no id, and spares the work for what texts begin with alike."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.requests import recall as module
from picker.requests import vocabulary, words
from picker.requests.ask import Ids
from picker.requests.coder import JsonCoder
from picker.requests.pieces import Slicer
from picker.requests.recall import ENDS, Recall
from picker.requests.vocabulary import Vocabulary
from tests.unit.requests.conftest import SPECIALS, byte_level, metaspace

TOKENIZERS = {"framed": byte_level(framed=True), "plain": byte_level(), "metaspace": metaspace()}
PARTS = st.lists(
    st.sampled_from(
        [*SPECIALS, "<|im_", " of", "of", "The fox", "\n", "é", "日本語", "\U0001f469", "<", "|>"]
    )
    | st.text(alphabet="ab .\n", max_size=6),
    max_size=12,
).map("".join)
LONG = 10_000_000


def told(mine: Vocabulary, text: str, *, special: bool = False, stepwise: bool = False) -> list[int]:
    if not stepwise:
        ids = mine.at_once(text, special=special, most=LONG)
        assert ids is not None
        return list(ids)
    into: Ids = array("I")
    for _ in mine.encode(text, special=special, into=into):
        pass
    return list(into)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many characters were encoded since it was asked last."""
    lengths: list[int] = []
    encode = JsonCoder.encode

    def counted(self: JsonCoder, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        lengths.extend(map(len, texts))
        return encode(self, texts, special=special)

    monkeypatch.setattr(JsonCoder, "encode", counted)

    def asked() -> int:
        total = sum(lengths)
        lengths.clear()
        return total

    return asked


@pytest.fixture
def no_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache of pieces and words, so that only what is recalled spares work."""
    monkeypatch.setattr(vocabulary, "CACHE_BYTES", 0)
    monkeypatch.setattr(words, "LEARNED", 0)


@pytest.fixture(params=["framed", "plain", "metaspace"])
def mine(request: pytest.FixtureRequest) -> Vocabulary:
    return Vocabulary(JsonCoder(TOKENIZERS[request.param]), None, None)


VOCABULARIES = {name: Vocabulary(JsonCoder(tokenizer), None, None) for name, tokenizer in TOKENIZERS.items()}


@given(
    texts=st.lists(
        st.tuples(PARTS, st.integers(0, 40), st.booleans(), st.booleans()), min_size=1, max_size=6
    ),
    name=st.sampled_from(sorted(TOKENIZERS)),
)
def test_ids_of_texts_that_begin_alike_are_those_of_each_text_for_itself(
    texts: list[tuple[str, int, bool, bool]], name: str
) -> None:
    before, mine = "", VOCABULARIES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ENDS", (*range(3, 30, 5), *range(30, 400, 17)))
        patch.setattr(vocabulary, "SLICE_CHARACTERS", 9)
        patch.setattr(mine, "_slicer", Slicer(mine.slices, 9))
        for part, kept, special, stepwise in texts:
            text = before[: len(before) - kept] + part
            expected = TOKENIZERS[name].encode(text, add_special_tokens=special).ids
            assert told(mine, text, special=special, stepwise=stepwise) == expected
            assert told(mine, text, special=special, stepwise=not stepwise) == expected
            before = text


def test_stretches_grow_with_the_text_to_a_bound() -> None:
    steps = [after - before for before, after in zip((0, *ENDS), ENDS, strict=False)]
    assert steps[0] == module.FIRST
    assert max(steps) == module.MOST
    assert all(2 * step <= max(end - step, 2 * module.FIRST) for step, end in zip(steps, ENDS, strict=True))


@pytest.mark.usefixtures("no_pieces")
@pytest.mark.parametrize("stepwise", [False, True])
def test_of_a_conversations_next_turn_only_what_is_near_its_end_is_encoded(
    encoded: Callable[[], int], mine: Vocabulary, stepwise: bool
) -> None:
    turns = [
        f"<|im_start|>user\nThe fox number {number} jumps over it{' and it' * 50}<|im_end|>\n"
        for number in range(40)
    ]
    told(mine, "".join(turns[:-1]), stepwise=stepwise)
    encoded()
    whole = "".join(turns)
    assert told(mine, whole, stepwise=stepwise) == told(Vocabulary(mine._coder, None, None), whole)
    encoded()
    told(mine, whole + turns[0], stepwise=stepwise)
    assert 0 < encoded() <= len(whole) // 3 + 2 * len(turns[0])
    told(mine, whole + turns[0], stepwise=stepwise)
    assert encoded() == 0


@pytest.mark.usefixtures("no_pieces")
def test_a_text_that_ends_where_a_stretch_ends_tells_nothing_of_one_that_goes_on(mine: Vocabulary) -> None:
    text = ("The fox jumps over it " * 100)[: ENDS[2] - 5] + "<|im_"
    assert len(text) == ENDS[2]
    longer = text + "start|>user"
    for each in (text, longer, text, longer):
        assert told(mine, each) == told(Vocabulary(mine._coder, None, None), each)


def test_what_is_recalled_counts_as_pieces_known(mine: Vocabulary) -> None:
    text = "".join(f"<|im_start|>user\nThe fox {number}{' jumps' * 30}<|im_end|>\n" for number in range(9))
    hits, misses = mine.cache.hits, mine.cache.misses
    told(mine, text)
    pieces = mine.cache.hits + mine.cache.misses - hits - misses
    hits, misses = mine.cache.hits, mine.cache.misses
    for stepwise in (False, True):
        told(mine, text + "<|im_start|>", stepwise=stepwise)
    assert mine.cache.hits + mine.cache.misses - hits - misses == 2 * (pieces + 1)
    assert mine.cache.misses == misses + 1


def test_too_much_that_is_new_is_not_encoded_at_once(mine: Vocabulary) -> None:
    assert mine.at_once("The fox " * 10, special=False, most=79) is None
    assert mine.at_once("The fox " * 10, special=False, most=80) is not None
    assert mine.at_once("The fox " * 10, special=False, most=0) is not None


def test_a_long_rest_is_not_cut_at_once(mine: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The fox jumps over it " * 50
    told(mine, text)
    assert mine.at_once(text + text[:50], special=False, most=0) is None
    told(mine, text + text[:50])
    monkeypatch.setattr(vocabulary, "CUT_AT_ONCE", 10)
    assert mine.at_once(text + text[:50], special=False, most=0) is not None
    assert mine.at_once(text[:-1], special=False, most=LONG) is None


def test_many_pieces_are_not_looked_up_at_once_though_they_are_known(mine: Vocabulary) -> None:
    text = "<s>" * 200
    told(mine, text)
    assert mine.at_once("x" + text, special=False, most=100) is None
    assert told(mine, "x" + text) == list(mine._whole("x" + text, special=False))
    assert mine.at_once("x" + text, special=False, most=0) is not None, "recalled as a whole"


def test_a_text_of_very_many_pieces_gives_way_to_others_and_is_not_recalled(
    mine: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "PIECES_STEP", 50)
    monkeypatch.setattr(vocabulary, "MOST_CUTS", 100)
    few, many = "<s>" * 90, "<s>" * 1000
    for text in (few, many, few, many):
        into: Ids = array("I")
        steps = mine.encode(text, special=False, into=into)
        given = sum(1 for _ in steps)
        assert given <= 2 if text is few else given >= 18
        assert list(into) == list(mine._whole(text, special=False))
        if text is few:
            assert mine.recall.find(few).whole == into
    assert mine.recall.find(many).whole is None


def test_a_piece_too_long_is_not_encoded_at_once(mine: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picker.requests.coder.MAX_PIECE", 10)
    assert mine.at_once("The fox jumps", special=False, most=100) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3_000)), max_size=40), st.integers(0, 40_000))
def test_no_more_is_held_than_the_limit_and_what_is_found_was_kept(
    texts: list[tuple[int, int]], limit: int
) -> None:
    mine = Recall(limit, reach=4, secret=5)
    for number, size in texts:
        text = str(number) * size
        known = mine.find(text)
        assert known.whole is None or list(known.whole) == [number] * size
        assert known.end == sum(map(len, known.parts)) or known.whole is not None
        mine.keep(
            text, known, [(end, end) for end in range(known.end, size + 1)], array("I", [number] * size)
        )
        assert mine.size <= limit
    assert (mine.size == 0) == (len(mine) == 0)
