"""One model's tokenizer with its chat template, read from a directory, and its ids, exact and partly from a cache."""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picker.requests.ask import Ids
from picker.requests.pieces import Cutter, PieceCache, cutting_tokens
from picker.requests.template import Template, find_template, read_json

# One prompt is one batch: more threads under it would only take the loop's processor.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer

CACHE_BYTES = 64 * 1024 * 1024
"""Size of one tokenizer's cache of pieces."""
GROUP_CHARACTERS = 32_768
"""Pieces not cached are encoded together up to this length; between two groups a job may stop."""
MAX_PIECE = 1024 * 1024
"""Longest text that is encoded at one go, in characters: encoding cannot be interrupted."""
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


class VocabularyError(Exception):
    """The directory holds no usable tokenizer; the message says which file and why."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """The special tokens that stand before and behind every text."""

    before: Ids
    behind: Ids


class Vocabulary:
    """A loaded tokenizer. Safe to use from several threads; every method blocks."""

    def __init__(
        self, tokenizer: Tokenizer, template: Template | None, tool_template: Template | None
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.template = template
        self._tool_template = tool_template or template
        self.cache = PieceCache(CACHE_BYTES)
        self._cutter = Cutter(cutting_tokens(tokenizer.get_added_tokens_decoder().values()))
        self._frame = self._find_frame()
        self.cuts = self._frame is not None and self._cutting_is_exact()
        """Whether cutting at special tokens gave the same ids on every trial; where not, nothing is cached."""

    @property
    def size(self) -> int:
        """Number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def template_for(self, *, tools: bool) -> Template | None:
        """The template for a conversation with or without tools; None: the model has none."""
        return self._tool_template if tools else self.template

    def encode(self, text: str, *, special: bool, into: Ids, go_on: Callable[[], bool]) -> bool:
        """
        Append the ids of ``text`` to ``into``, a group of pieces at a time.

        Args:
            text: The prompt.
            special: Whether it is framed by the tokenizer's special tokens.
            into: At any moment it holds leading ids of the text, each of them right.
            go_on: Asked between two groups; False stops.

        Returns:
            False where it stopped early, or a piece was too long.

        """
        if not self.cuts or self._frame is None:
            if len(text) > MAX_PIECE or not go_on():
                return False
            into.extend(self._whole(text, special=special))
            return True
        if special:
            into.extend(self._frame.before)
        if not self._encode_pieces(self._cutter.cut(text), into, go_on):
            return False
        if special:
            into.extend(self._frame.behind)
        return True

    def _encode_pieces(self, pieces: list[str], into: Ids, go_on: Callable[[], bool]) -> bool:
        group: list[str] = []
        length = 0
        for piece in pieces:
            if len(piece) > MAX_PIECE:
                self._flush(group, into)
                return False
            known = self.cache.get(piece)
            if known is None:
                group.append(piece)
                length += len(piece)
                if length < GROUP_CHARACTERS:
                    continue
            if group and not go_on():
                return False
            self._flush(group, into)
            length = 0
            if known is not None:
                into.extend(known)
        if group and not go_on():
            return False
        self._flush(group, into)
        return True

    def _flush(self, group: list[str], into: Ids) -> None:
        """Encode the pieces of a group, keep them, and empty the group."""
        if not group:
            return
        for piece, encoding in zip(group, self._batch(group), strict=True):
            ids = array("I", encoding)
            self.cache.put(piece, ids)
            into.extend(ids)
        group.clear()

    def _batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of several texts without framing; lets other threads run meanwhile, which ``encode`` does not."""
        return [
            encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]

    def _whole(self, text: str, *, special: bool) -> Ids:
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        return array("I", encoding.ids)

    def _find_frame(self) -> _Frame | None:
        plain, framed = self._whole("a b", special=False), self._whole("a b", special=True)
        for at in range(len(framed) - len(plain) + 1):
            if framed[at : at + len(plain)] == plain:
                return _Frame(framed[:at], framed[at + len(plain) :])
        return None

    def _cutting_is_exact(self) -> bool:
        """Compare whole texts with their pieces, on texts made of awkward words and all special tokens."""
        chance = random.Random(len(self._cutter.tokens))
        added = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
        for trial in range(TRIALS):
            words = chance.choices(_WORDS, k=chance.randrange(1, 60))
            words += chance.choices(added, k=chance.randrange(8)) if added else []
            words += chance.choices(self._cutter.tokens, k=chance.randrange(8)) if self._cutter.tokens else []
            chance.shuffle(words)
            text = "".join(words)
            special = trial % 2 == 1
            joined = [token for ids in self._batch(self._cutter.cut(text)) for token in ids]
            if special and self._frame is not None:
                joined = [*self._frame.before, *joined, *self._frame.behind]
            if self._whole(text, special=special) != array("I", joined):
                return False
        return True


def load(directory: Path) -> Vocabulary:
    """
    Read a model's tokenizer and template; takes up to seconds.

    Raises:
        VocabularyError: a file is missing or broken.

    """
    file = directory / "tokenizer.json"
    if not file.is_file():
        raise VocabularyError(f"{file} does not exist; put the model's tokenizer.json there")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise VocabularyError(f"{file} is no tokenizer: {str(error)[:300]}") from error
    try:
        special = _special_tokens(directory)
        plain, tools = (_template(directory, special, tools=tools) for tools in (False, True))
        return Vocabulary(tokenizer, plain, tools)
    except Exception as error:
        raise VocabularyError(f"{directory}: {type(error).__name__}: {str(error)[:300]}") from error


def _template(directory: Path, special: dict[str, Any], *, tools: bool) -> Template | None:
    found = find_template(directory, tools=tools)
    return Template(found[0], special) if found else None


def _special_tokens(directory: Path) -> dict[str, Any]:
    """Names of special tokens as templates use them: ``bos_token`` and its like, as text."""
    merged = {
        **read_json(directory / "special_tokens_map.json"),
        **read_json(directory / "tokenizer_config.json"),
    }
    tokens: dict[str, Any] = {}
    for name in _SPECIAL_NAMES:
        value = merged.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            tokens[name] = value
    return tokens
