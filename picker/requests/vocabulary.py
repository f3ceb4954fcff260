"""One model's tokenizer with its chat template, read from a directory, and its ids, exact and partly from a cache."""

from __future__ import annotations

import random
import secrets
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from picker.requests.ask import Ids
from picker.requests.coder import MAX_PIECE, Coder, JsonCoder, VocabularyError, read_tokenizer_json
from picker.requests.pieces import PLACES, Cutter, PieceCache, Place, Slicer, cutting_tokens
from picker.requests.ranks import find_ranks, read_ranks
from picker.requests.recall import Cut, Known, Recall
from picker.requests.template import Template, find_template, read_json
from picker.requests.words import Words

__all__ = ["MAX_PIECE", "Vocabulary", "VocabularyError", "load"]

CACHE_BYTES = 64 * 1024 * 1024
"""Size of one tokenizer's cache of pieces."""
RECALL_BYTES = 32 * 1024 * 1024
"""Size of what it remembers of whole texts."""
GROUP_CHARACTERS = 16_384
"""Pieces not cached are encoded together up to this length; between two groups others have their turn."""
CUT_AT_ONCE = 65_536
"""Longest rest of a text, behind what is recalled of it, that is cut into pieces at once: that takes 0.1 ms."""
PIECES_AT_ONCE = 32
"""So many pieces more than characters may be encoded are looked up at once: to look one up takes as long as that."""
PIECES_STEP = 4_096
"""So many pieces are looked up in one step, which counts as so many characters."""
MOST_CUTS = 65_536
"""Pieces of a text that is recalled: where it has more, it is made to have them, and their places would take 100 MB."""
SPLIT = 4
"""So many times as many characters as may be encoded at once are split into words: that takes as long."""
SLICE_CHARACTERS = 8192
"""A piece longer than this is cut into slices of about this length, where the tokenizer allows it."""
TRIALS = 200
"""Texts on which cutting is tried at load."""

_SPECIAL_NAMES = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip

_WORDS = (
    "the", " the", "Hello", "naïve", "straße", "日本語", "한국어", "привет", "مرحبا", "e\u0301", "\U0001f469\u200d",
    "1", "23456", "3.14", " ", "  ", "\n", "\n\n", "\t", "\r\n", ".", "...", "!?", "'s", "'ll", "_", "<", "|",
    "<|", "|>", "</", ">", "[", "]", "def f(x):", '{"a": 1}', "a" * 40, "\u00a0", "\ufeff", "\u2581", "\u0120",
    "\ufb01", "\u017f", "\u200d",
)  # fmt: skip
"""What tokenizers are known to stumble over."""

Steps = Generator[int, None, bool]
"""Work in steps: each gives the size of the next one, in characters, before it is done."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """The special tokens that stand before and behind every text."""

    before: Ids
    behind: Ids


class Vocabulary:
    """A loaded tokenizer. Safe to use from several threads; every method blocks."""

    def __init__(self, coder: Coder, template: Template | None, tool_template: Template | None) -> None:
        self._coder = coder
        self.template = template
        self._tool_template = tool_template or template
        self.cache = PieceCache(CACHE_BYTES)
        self._added = [token.content for token in coder.added]
        self._cutter = Cutter(cutting_tokens(coder.added))
        self._frame = self._find_frame()
        self.cuts = self._frame is not None and self._cutting_is_exact(self._cutter.cut)
        """Whether cutting at special tokens gave the same ids on every trial; where not, nothing is cached."""
        self.slices: tuple[Place, ...] = self._exact_places() if self.cuts else ()
        """The places inside plain text at which cutting gave the same ids on every trial."""
        self._slicer = Slicer(self.slices, SLICE_CHARACTERS)
        # ranks are encoded as fast as words are looked up
        pays = isinstance(coder, JsonCoder) and any(place.name == "words" for place in self.slices)
        self._words = Words(partial(coder.encode, special=False)) if pays else None
        # a cut is decided by the token that stands behind it, or by one character
        reach = max((len(token.encode()) for token in self._cutter.tokens), default=0) + 4
        self.recall = Recall(RECALL_BYTES, reach=reach, secret=secrets.randbits(64))

    @property
    def size(self) -> int:
        """Number of tokens, added ones included."""
        return self._coder.size

    def template_for(self, *, tools: bool) -> Template | None:
        """The template for a conversation with or without tools; None: the model has none."""
        return self._tool_template if tools else self.template

    def encode(self, text: str, *, special: bool, into: Ids) -> Steps:
        """
        Append the ids of ``text`` to ``into``, a group of pieces at a time.

        Args:
            text: The prompt.
            special: Whether it is framed by the tokenizer's special tokens.
            into: At any moment it holds leading ids of the text, each of them right.

        Returns:
            Steps, whose result is False where a piece was too long: then ``into`` ends before it.

        """
        if not self.cuts or self._frame is None:
            if len(text) > self._coder.longest:
                return False
            yield len(text)
            into.extend(self._whole(text, special=special))
            return True
        if special:
            into.extend(self._frame.before)
        if not (yield from self._encode_pieces(text, into)):
            return False
        if special:
            into.extend(self._frame.behind)
        return True

    def at_once(self, text: str, *, special: bool, most: int) -> Ids | None:
        """
        The ids of ``text``, not to be changed; None where more than ``most`` characters of it would have to be encoded.

        As `encode`, in one step and at less cost.
        """
        if not self.cuts or self._frame is None:
            return self._whole(text, special=special) if len(text) <= min(most, self._coder.longest) else None
        known = self.recall.find(text)
        ids = known.whole
        if ids is None:
            ids = self._completed(text, known, most) if len(text) - known.end <= CUT_AT_ONCE else None
            if ids is None:
                return None
        else:
            self.cache.count(known.pieces, 0)
        return self._frame.before + ids + self._frame.behind if special else ids

    def _completed(self, text: str, known: Known, most: int) -> Ids | None:
        few = self._cutter.cut_few(text[known.end :], PIECES_AT_ONCE + most)
        if few is None:
            return None
        pieces = list(self._sliced(few))
        found = self.cache.find(pieces)
        new = [piece for piece, ids in zip(pieces, found, strict=True) if ids is None]
        told = self._encoded_at_once(new, most) if new else []
        if told is None:
            return None
        encoded = iter(told)
        whole: Ids = array("I")
        for part in known.parts:
            whole.extend(part)
        cuts: list[Cut] = [(known.end, len(whole))]
        self._extend(whole, cuts, pieces, [next(encoded) if ids is None else ids for ids in found], 0)
        self.cache.count(known.pieces + len(pieces) - len(new), len(new))
        self.recall.keep(text, known, cuts, whole)
        return whole

    def _encode_pieces(self, text: str, into: Ids) -> Steps:
        known = self.recall.find(text)
        self.cache.count(known.pieces, 0)
        if known.whole is not None:
            into.extend(known.whole)
            return True
        begin = len(into)
        for part in known.parts:
            into.extend(part)
        cuts: list[Cut] = [(known.end, len(into) - begin)]
        group: list[str] = []
        length = 0
        for number, piece in enumerate(self._sliced(self._cutter.cut(text[known.end :])), 1):
            if number % PIECES_STEP == 0:
                yield PIECES_STEP
            ids = None if len(piece) > self._coder.longest else self.cache.get(piece)
            fits = ids is None and len(piece) <= self._coder.longest
            if group and (not fits or length + len(piece) > GROUP_CHARACTERS):
                yield length
                self._extend(into, cuts, group, self._encoded(group), begin)
                group, length = [], 0
            if ids is not None:
                self._extend(into, cuts, [piece], [ids], begin)
            elif not fits:
                return False
            else:
                group.append(piece)
                length += len(piece)
        if group:
            yield length
            self._extend(into, cuts, group, self._encoded(group), begin)
        if len(cuts) <= MOST_CUTS:
            self.recall.keep(text, known, cuts, into[begin:])
        return True

    @staticmethod
    def _extend(into: Ids, cuts: list[Cut], pieces: Sequence[str], ids: Sequence[Ids], begin: int) -> None:
        """Append the ids of pieces, and where each ends; past `MOST_CUTS` no places are kept."""
        for piece, its in zip(pieces, ids, strict=True):
            into.extend(its)
            if len(cuts) <= MOST_CUTS:
                cuts.append((cuts[-1][0] + len(piece), len(into) - begin))

    def _sliced(self, pieces: Iterable[str]) -> Iterator[str]:
        """The pieces, those that are too long for one cut further."""
        for piece in pieces:
            if len(piece) > SLICE_CHARACTERS:
                yield from self._slicer.cut(piece)
            else:
                yield piece

    def _encoded(self, pieces: Sequence[str]) -> list[Ids]:
        """Encode pieces, and keep them."""
        return self._kept(pieces, [array("I", ids) for ids in self._coder.encode(pieces, special=False)])

    def _encoded_at_once(self, pieces: Sequence[str], most: int) -> list[Ids] | None:
        """As `_encoded`, and word by word; None where more than ``most`` characters would have to be encoded."""
        if max(map(len, pieces)) > self._coder.longest:
            return None
        length = sum(map(len, pieces))
        if self._words is None:
            return self._encoded(pieces) if length <= most else None
        told = self._words.ids(pieces, most) if length <= SPLIT * most else None
        return None if told is None else self._kept(pieces, told)

    def _kept(self, pieces: Sequence[str], encoded: list[Ids]) -> list[Ids]:
        for piece, ids in zip(pieces, encoded, strict=True):
            self.cache.put(piece, ids)
        return encoded

    def _whole(self, text: str, *, special: bool) -> Ids:
        return array("I", self._coder.encode([text], special=special)[0])

    def _find_frame(self) -> _Frame | None:
        plain, framed = self._whole("a b", special=False), self._whole("a b", special=True)
        for at in range(len(framed) - len(plain) + 1):
            if framed[at : at + len(plain)] == plain:
                return _Frame(framed[:at], framed[at + len(plain) :])
        return None

    def _exact_places(self) -> tuple[Place, ...]:
        """Those kinds of places that no token reaches over, and where cutting changed nothing in any trial."""
        free = [place for place in PLACES if not place.may_span(self._coder.words())]
        return tuple(place for place in free if self._cutting_is_exact(Slicer((place,), 1).cut))

    def _cutting_is_exact(self, cut: Callable[[str], Iterable[str]]) -> bool:
        """Compare whole texts with their pieces, on texts made of awkward words and all special tokens."""
        chance = random.Random(len(self._cutter.tokens))
        for trial in range(TRIALS):
            text = self._awkward(chance)
            special = trial % 2 == 1
            joined = [token for ids in self._coder.encode(list(cut(text)), special=False) for token in ids]
            if special and self._frame is not None:
                joined = [*self._frame.before, *joined, *self._frame.behind]
            if self._whole(text, special=special) != array("I", joined):
                return False
        return True

    def _awkward(self, chance: random.Random) -> str:
        words = chance.choices(_WORDS, k=chance.randrange(1, 60))
        words += chance.choices(("\n", " of", " a", "A"), k=chance.randrange(30))
        words += chance.choices(self._added, k=chance.randrange(8)) if self._added else []
        words += chance.choices(self._cutter.tokens, k=chance.randrange(8)) if self._cutter.tokens else []
        chance.shuffle(words)
        return "".join(words)


def load(directory: Path) -> Vocabulary:
    """
    Read a model's tokenizer and template; takes up to seconds.

    Raises:
        VocabularyError: a file is missing or broken.

    """
    coder = _coder(directory)
    try:
        special = _special_tokens(directory)
        plain, tools = (_template(directory, special, tools=tools) for tools in (False, True))
        return Vocabulary(coder, plain, tools)
    except Exception as error:
        raise VocabularyError(f"{directory}: {type(error).__name__}: {str(error)[:300]}") from error


def _coder(directory: Path) -> Coder:
    file = directory / "tokenizer.json"
    if file.is_file():
        return read_tokenizer_json(file)
    ranks = find_ranks(directory)
    if ranks is None:
        raise VocabularyError(f"{file} does not exist; put the model's tokenizer.json or *.tiktoken there")
    return read_ranks(ranks)


def _template(directory: Path, special: dict[str, Any], *, tools: bool) -> Template | None:
    found = find_template(directory, tools=tools)
    return Template(found[0], special) if found else None


def _special_tokens(directory: Path) -> dict[str, Any]:
    """Names of special tokens as templates use them: ``bos_token`` and its like, as text."""
    merged = {
        **read_json(directory / "special_tokens_map.json"),
        **read_json(directory / "tokenizer_config.json"),
        **read_json(directory / "tiktoken.json"),
    }
    tokens: dict[str, Any] = {}
    for name in _SPECIAL_NAMES:
        value = merged.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    return tokens
