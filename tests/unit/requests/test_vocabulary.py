"""Ids equal to the library's own, whether cut into pieces and cached or not."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, trainers

from picker.requests import coder, pieces, vocabulary
from picker.requests.ask import Ids
from picker.requests.coder import JsonCoder
from picker.requests.pieces import PLACES, Cutter, PieceCache, Slicer, cutting_tokens
from picker.requests.vocabulary import Steps, Vocabulary, VocabularyError, load
from tests.unit.requests.conftest import SPECIALS, byte_level, metaspace, save

FRAMED = byte_level(framed=True)
TOKENIZERS: dict[str, Tokenizer] = {"framed": FRAMED, "plain": byte_level(), "metaspace": metaspace()}
VOCABULARIES = {name: Vocabulary(JsonCoder(tokenizer), None, None) for name, tokenizer in TOKENIZERS.items()}
TEXT = st.lists(st.sampled_from(SPECIALS) | st.text(max_size=20), max_size=12).map("".join)


def encode(vocabulary: Vocabulary, text: str, *, special: bool = False) -> list[int]:
    into: Ids = array("I")
    assert finished(vocabulary.encode(text, special=special, into=into))
    return list(into)


def finished(steps: Steps) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_common_tokenizers_may_be_cut(name: str) -> None:
    assert VOCABULARIES[name].cuts


@given(text=TEXT, special=st.booleans(), name=st.sampled_from(sorted(TOKENIZERS)))
def test_ids_of_pieces_are_the_ids_of_the_whole_text(text: str, special: bool, name: str) -> None:
    expected = TOKENIZERS[name].encode(text, add_special_tokens=special).ids
    for _ in range(2):  # the second time from the cache
        assert encode(VOCABULARIES[name], text, special=special) == expected


def test_a_text_seen_before_is_taken_from_the_cache() -> None:
    mine = Vocabulary(JsonCoder(byte_level()), None, None)
    first, second = "<|im_start|>user\nHello<|im_end|>\n", "<|im_start|>assistant\n"
    encode(mine, first)
    hits, misses = mine.cache.hits, mine.cache.misses
    encode(mine, first + second)
    assert mine.cache.hits == hits + 2
    assert mine.cache.misses == misses + 1


def test_a_tokenizer_whose_ids_depend_on_what_stood_before_is_not_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The longer token takes the blank before it: cut there, the text would lose that.
    greedy = byte_level(specials=(AddedToken("<|im_start|>", special=True, lstrip=True),))
    monkeypatch.setattr(vocabulary, "cutting_tokens", lambda _added: ("<|im_start|>",))
    mine = Vocabulary(JsonCoder(greedy), None, None)
    assert not mine.cuts
    text = "Hello  <|im_start|>user"
    assert encode(mine, text) == greedy.encode(text, add_special_tokens=False).ids
    assert len(mine.cache) == 0


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    loaded = load(save(tmp_path, tokenizer))
    text = "The quick brown fox jumps over the lazy dog"
    assert encode(loaded, text) == byte_level().encode(text).ids


def test_between_two_steps_what_is_told_is_right(ids_of: Callable[..., list[int]]) -> None:
    mine = Vocabulary(JsonCoder(byte_level(framed=True)), None, None)
    text = "".join(f"<|im_start|>user\n{'word ' * 5000}{turn}<|im_end|>" for turn in range(8))
    into: Ids = array("I")
    whole = ids_of(text, special=True)
    lengths: list[int] = []
    for size in mine.encode(text, special=True, into=into):
        assert size <= vocabulary.GROUP_CHARACTERS
        assert list(into) == whole[: len(into)]
        lengths.append(len(into))
    assert len(set(lengths)) > 3
    assert list(into) == whole


def test_a_piece_too_long_stops_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coder, "MAX_PIECE", 100)
    mine = Vocabulary(JsonCoder(byte_level()), None, None)
    into: Ids = array("I")
    head = "<|im_start|>user\nHello"
    assert not finished(mine.encode(head + "<|im_end|>" + "x" * 200, special=False, into=into))
    assert list(into) == byte_level().encode(head).ids


LINES = st.lists(
    st.sampled_from([*SPECIALS, " ", "\n", "  ", "\t", ".", "of", " of", "The fox", "é", "日本", "'s", "1"])
    | st.text(max_size=8),
    max_size=40,
).map("".join)


@given(text=LINES, special=st.booleans(), name=st.sampled_from(sorted(TOKENIZERS)))
def test_ids_of_slices_are_the_ids_of_the_whole_text(text: str, special: bool, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mine = VOCABULARIES[name]
        patch.setattr(mine, "_slicer", Slicer(mine.slices, 1))
        assert (
            encode(mine, text, special=special)
            == TOKENIZERS[name].encode(text, add_special_tokens=special).ids
        )


def test_plain_text_is_sliced_where_the_tokenizer_allows_it() -> None:
    assert [place.name for place in VOCABULARIES["plain"].slices] == ["lines", "words"]
    # It puts a blank before every text that has none, so a slice that begins a line would have one too many.
    assert [place.name for place in VOCABULARIES["metaspace"].slices] == ["words"]


def test_a_place_that_a_token_reaches_over_is_not_cut() -> None:
    lines, words = PLACES
    for spanning in ("x\u010aA", "\nA", "a\n\xe6"):
        assert lines.may_span(["the", spanning])
    for spanning in ("the\u0120", "of the", "a\u2581b"):
        assert words.may_span(["the", spanning])
    for harmless in ("\u0120the", ".\u010a\u010a", "\u010a\u0120\u0120", "the", " the", "\n\n"):
        assert not lines.may_span([harmless])
        assert not words.may_span([harmless])
    merging = Tokenizer(models.BPE())  # no pre-tokenizer: merges reach over blanks and line ends
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False)
    merging.train_from_iterator(["of the\nThe fox of the\nThe"] * 50, trainer)
    mine = Vocabulary(JsonCoder(merging), None, None)
    assert mine.slices == ()
    text = "of the\nThe fox" * 4
    assert encode(mine, text) == merging.encode(text).ids


@given(text=st.text(alphabet="ab \n.", max_size=200), more=st.text(alphabet="ab \n.", max_size=50))
def test_texts_that_begin_alike_are_sliced_alike(text: str, more: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "WINDOW", 7)
        slicer = Slicer(PLACES, 5)
        short, long = list(slicer.cut(text)), list(slicer.cut(text + more))
    assert "".join(short) == text
    assert "".join(long) == text + more
    assert long[: max(len(short) - 1, 0)] == short[:-1]
    assert all(long)


def test_a_long_completion_seen_before_is_taken_from_the_cache() -> None:
    mine = Vocabulary(JsonCoder(byte_level()), None, None)
    text = "\n".join(f"The dog number {number} sleeps" for number in range(4000))
    encode(mine, text)
    missed = mine.cache.misses
    more = text + " and more"
    assert encode(mine, more) == byte_level().encode(more).ids
    assert mine.cache.misses == missed + 1


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "does not exist"),
        ({"tokenizer.json": "{"}, "no tokenizer"),
        ({"tokenizer.json": "[]"}, "no tokenizer"),
        ({"tokenizer_config.json": "{"}, "JSONDecodeError"),
        ({"tokenizer_config.json": "[]"}, "must hold a JSON object"),
        ({"chat_template.jinja": "{% if %}"}, "TemplateSyntaxError"),
    ],
)
def test_missing_and_broken_files_say_what_is_wrong(tmp_path: Path, files: dict[str, str], says: str) -> None:
    if files and "tokenizer.json" not in files:
        save(tmp_path, byte_level())
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(VocabularyError, match=says):
        load(tmp_path)


def test_special_tokens_reach_the_template(tmp_path: Path) -> None:
    template = "{{ bos_token }}{{ eos_token }}{{ pad_token }}"
    (tmp_path / "special_tokens_map.json").write_text('{"pad_token": "<|endoftext|>", "bos_token": "old"}')
    loaded = load(save(tmp_path, byte_level(), template=template))
    assert loaded.template is not None
    from picker.requests.ask import Chat

    text = loaded.template.render(Chat([{"role": "user", "content": "x"}]), limit=100).text
    assert text == "<s><|im_end|><|endoftext|>"


def added(content: str, *, special: bool = True, **flags: bool) -> AddedToken:
    return AddedToken(content, special=special, **{"normalized": False, **flags})


def test_only_tokens_that_cut_for_certain_are_taken() -> None:
    tokens = [
        added("<a>"), added("<word>", special=False), added("<left>", lstrip=True), added("<norm>", normalized=True),
        added("<single>", single_word=True), added("<long><a>x"), added("bc<"), added("<right>", rstrip=True),
    ]  # fmt: skip
    # "<a>" may stand inside a longer token, and "bc<" ends as others begin.
    assert cutting_tokens(tokens) == ("bc<",)
    assert cutting_tokens([added("<a>"), added("<bb>"), added("<right>", rstrip=True)]) == (
        "<right>",
        "<bb>",
        "<a>",
    )
    assert cutting_tokens([added("<a>"), added("<a>b")]) == ("<a>b", "<a>")


@given(TEXT)
def test_pieces_joined_are_the_text(text: str) -> None:
    cut = list(Cutter(cutting_tokens([added(token) for token in SPECIALS])).cut(text))
    assert "".join(cut) == text
    assert all(cut)
    assert all(piece.startswith(tuple(SPECIALS)) for piece in cut[1:])


@given(TEXT, st.integers(0, 9))
def test_few_pieces_are_cut_alike_and_more_are_none(text: str, most: int) -> None:
    cutter = Cutter(cutting_tokens([added(token) for token in SPECIALS]))
    cut = list(cutter.cut(text))
    assert cutter.cut_few(text, most) == (cut if len(cut) <= most else None)


ALIKE = ("<a>", "<ab>", "<ab>c", "<b", "x", "xyz", "[+]")


@given(st.text(alphabet="<abc>xyz[+] ", max_size=60), st.integers(1, 9))
def test_of_tokens_that_begin_alike_the_longest_is_found_over_every_window(text: str, window: int) -> None:
    plain = re.compile("|".join(re.escape(token) for token in sorted(ALIKE, key=len, reverse=True)))
    starts = [found.start() for found in plain.finditer(text)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "WINDOW", window)
        assert list(Cutter(ALIKE)._starts(text)) == starts


def test_without_cutting_tokens_a_text_is_one_piece() -> None:
    assert list(Cutter(()).cut("abc")) == ["abc"]
    assert list(Cutter(()).cut("")) == []


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 50)), max_size=200))
def test_the_cache_never_holds_more_than_its_limit(puts: list[tuple[int, int]]) -> None:
    cache = PieceCache(4000)
    for key, size in puts:
        cache.put(f"piece {key}", array("I", [key] * size))
        assert cache.bytes <= 4000
        held = cache.get(f"piece {key}")
        assert held is None or held[0] == key


def test_the_least_recently_used_piece_goes_first() -> None:
    cache = PieceCache(8 * 300)
    for key in "abcdefg":
        cache.put(key, array("I", [1]))
    cache.get("a")
    while cache.evicted == 0:
        cache.put(f"more {len(cache)}", array("I", [1]))
    assert cache.get("a") is not None
    assert cache.get("b") is None


def test_several_pieces_are_looked_up_at_once_and_counted_when_their_use_is_known() -> None:
    cache = PieceCache(8 * 300)
    for key in "abcdefg":
        cache.put(key, array("I", [ord(key)]))
    assert cache.find(["a", "z", "g"]) == [array("I", [97]), None, array("I", [103])]
    assert (cache.hits, cache.misses) == (0, 0)
    cache.count(2, 1)
    assert (cache.hits, cache.misses) == (2, 1)
    while cache.evicted == 0:
        cache.put(f"more {len(cache)}", array("I", [1]))
    assert cache.find(["a", "b"])[1] is None, "what was looked up last goes last"
    assert cache.find(["a"]) == [array("I", [97])]


def test_a_piece_that_would_push_out_the_rest_is_not_kept() -> None:
    cache = PieceCache(8000)
    cache.put("a", array("I", [1]))
    cache.put("x" * 2000, array("I", [1]))
    assert len(cache) == 1
