"""What turns text into token ids, as the rest asks for it; and the one read from a `tokenizer.json`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from picker.requests.pieces import Added

# One prompt is one batch: more threads under it would only take the loop's processor.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer

MAX_PIECE = 1024 * 1024
"""Longest text that is encoded at one go, in characters: encoding cannot be interrupted."""


class VocabularyError(Exception):
    """The directory holds no usable tokenizer; the message says which file and why."""


class Coder(Protocol):
    """One tokenizer. Safe to use from several threads; encoding lets other threads run meanwhile."""

    @property
    def size(self) -> int:
        """Number of tokens, added ones included."""
        ...

    @property
    def longest(self) -> int:
        """Longest text that may be encoded at one go, in characters."""
        ...

    @property
    def added(self) -> Sequence[Added]:
        """The tokens that are found in a text before anything else looks at it."""
        ...

    def words(self) -> Iterable[str]:
        """The other tokens, one character a byte or as the vocabulary spells them."""
        ...

    def encode(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """The ids of each text; ``special``: framed by the tokenizer's special tokens."""
        ...


class JsonCoder:
    """A tokenizer of the ``tokenizers`` library."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._added: tuple[Added, ...] = tuple(tokenizer.get_added_tokens_decoder().values())

    @property
    def size(self) -> int:
        """Number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def longest(self) -> int:
        """Longest text that may be encoded at one go, in characters."""
        return MAX_PIECE

    @property
    def added(self) -> Sequence[Added]:
        """The added tokens, special or not."""
        return self._added

    def words(self) -> Iterable[str]:
        """The tokens that were not added, as the vocabulary spells them."""
        added = {token.content for token in self._added}
        return (word for word in self._tokenizer.get_vocab(with_added_tokens=False) if word not in added)

    def encode(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """Ids of several texts. As a batch, which lets other threads run meanwhile; a single ``encode`` does not."""
        return [
            encoding.ids
            for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
        ]


def read_tokenizer_json(file: Path) -> JsonCoder:
    """
    Read a `tokenizer.json`; takes up to seconds.

    Raises:
        VocabularyError: it is no tokenizer.

    """
    try:
        return JsonCoder(Tokenizer.from_file(str(file)))
    except Exception as error:
        raise VocabularyError(f"{file} is no tokenizer: {str(error)[:300]}") from error
