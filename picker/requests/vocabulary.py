"""One model's tokenizer with its chat template, read from a directory, and its ids, exact and partly from a cache."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picker.requests.ask import Ids
from picker.requests.coder import MAX_PIECE, Coder, VocabularyError, read_tokenizer_json
from picker.requests.pieces import PLACES, Cutter, PieceCache, Place, Slicer, cutting_tokens
from picker.requests.ranks import find_ranks, read_ranks
from picker.requests.template import Template, find_template, read_json

__all__ = ["MAX_PIECE", "Vocabulary", "VocabularyError", "load"]

CACHE_BYTES = 64 * 1024 * 1024
"""Size of one tokenizer's cache of pieces."""
GROUP_CHARACTERS = 16_384
"""Pieces not cached are encoded together up to this length; between two groups others have their turn."""
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

    def _encode_pieces(self, text: str, into: Ids) -> Steps:
        group: list[str] = []
        length = 0
        for piece in self._pieces(text):
            known = None if len(piece) > self._coder.longest else self.cache.get(piece)
            fits = known is None and len(piece) <= self._coder.longest
            if group and (not fits or length + len(piece) > GROUP_CHARACTERS):
                yield length
                self._flush(group, into)
                length = 0
            if known is not None:
                into.extend(known)
            elif not fits:
                return False
            else:
                group.append(piece)
                length += len(piece)
        if group:
            yield length
            self._flush(group, into)
        return True

    def _pieces(self, text: str) -> Iterator[str]:
        for piece in self._cutter.cut(text):
            yield from self._slicer.cut(piece)

    def _flush(self, group: list[str], into: Ids) -> None:
        """Encode the pieces of a group, keep them, and empty the group."""
        for piece, encoding in zip(group, self._coder.encode(group, special=False), strict=True):
            ids = array("I", encoding)
            self.cache.put(piece, ids)
            into.extend(ids)
        group.clear()

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

    def _cutting_is_exact(self, cut: Callable[[str], Iterator[str] | Sequence[str]]) -> bool:
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
