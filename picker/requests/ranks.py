"""
Tokenizers kept as ranks of byte sequences: `*.tiktoken` files, one base64 text and its rank a line.

Such a file holds neither the pattern that splits a text into words nor the special tokens. They are read from
`tiktoken.json` beside it, else from `tokenizer_config.json`:

``pattern`` (or ``pat_str``)
    The regular expression of a word.
``special_tokens``
    Text -> id. Where it is absent, ``added_tokens_decoder`` (id -> ``{"content": text}``) of `tokenizer_config.json`.
``normalization``
    ``NFC`` and its like: applied to the text between special tokens, as fast tokenizers do. Absent: none.
``bos_token``, ``add_bos_token``, ``eos_token``, ``add_eos_token``
    What frames a completion.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from picker.requests.coder import VocabularyError
from picker.requests.pieces import Added, any_of
from picker.requests.template import read_json

if TYPE_CHECKING:
    from tiktoken import Encoding

LONGEST = 800_000
"""Characters encoded at one go: the library's pattern matching overflows its stack towards a million blanks."""
MAX_ID = 2**32 - 1
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A special token of a ranks file: found wherever its text stands, the longest first."""

    content: str
    special: bool = True
    normalized: bool = False
    lstrip: bool = False
    single_word: bool = False


@dataclass(frozen=True, slots=True)
class Manner:
    """What a ranks file does not say of itself."""

    pattern: str
    special_tokens: Mapping[str, int]
    form: Form | None = None
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()


class RankCoder:
    """A tokenizer of the ``tiktoken`` library. Special tokens are cut out here, so that the longest is found."""

    def __init__(self, encoding: Encoding, ranks: Mapping[bytes, int], manner: Manner) -> None:
        self._encoding = encoding
        self._ranks = ranks
        self._manner = manner
        self._added: tuple[Added, ...] = tuple(SpecialToken(text) for text in manner.special_tokens)
        words = any_of(list(manner.special_tokens))
        self._special = re.compile(words) if words else None

    @property
    def size(self) -> int:
        """Number of tokens, special ones included."""
        return len(self._ranks) + len(self._manner.special_tokens)

    @property
    def longest(self) -> int:
        """Longest text that may be encoded at one go, in characters."""
        return LONGEST

    @property
    def added(self) -> Sequence[Added]:
        """The special tokens."""
        return self._added

    def words(self) -> Iterable[str]:
        """The other tokens, one character a byte."""
        return (token.decode("latin-1") for token in self._ranks)

    def encode(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        """
        The ids of each text.

        Raises:
            RuntimeError: the library gave up.

        """
        before, behind = (self._manner.before, self._manner.behind) if special else ((), ())
        return [[*before, *self._ids(text), *behind] for text in texts]

    def _ids(self, text: str) -> Iterator[int]:
        at = 0
        for found in self._special.finditer(text) if self._special else ():
            yield from self._plain(text[at : found.start()])
            yield self._manner.special_tokens[found[0]]
            at = found.end()
        yield from self._plain(text[at:])

    def _plain(self, text: str) -> list[int]:
        if not text:
            return []
        if self._manner.form is not None and not text.isascii():
            text = unicodedata.normalize(self._manner.form, text)
        try:
            return self._encoding.encode_ordinary(text)
        except BaseException as error:
            # The library's panics are no Exception, and would pass through every handler above.
            if type(error).__name__ == "PanicException":
                raise RuntimeError(f"tiktoken gave up: {str(error)[:200]}") from None
            raise


def find_ranks(directory: Path) -> Path | None:
    """
    The directory's ranks file; None: it has none.

    Raises:
        VocabularyError: it has several.

    """
    files = [*sorted(directory.glob("*.tiktoken")), *directory.glob("tiktoken.model")]
    if len(files) > 1:
        raise VocabularyError(f"{directory} holds {files[0].name} and {files[1].name}; one is needed")
    return files[0] if files else None


def read_ranks(file: Path) -> RankCoder:
    """
    Read a ranks file and what belongs to it; takes up to seconds.

    Raises:
        VocabularyError: a file is broken, something is not said, or the library is not installed.

    """
    try:
        from tiktoken import Encoding
    except ImportError as error:
        raise VocabularyError(
            f"{file} needs the package tiktoken, which cannot be imported: {error}"
        ) from error
    ranks = _ranks(file)
    manner = _manner(file.parent, ranks)
    try:
        encoding = Encoding(
            file.stem,
            pat_str=manner.pattern,
            mergeable_ranks=ranks,
            special_tokens=dict(manner.special_tokens),
        )
        encoding.encode_ordinary("a")
    except (
        BaseException
    ) as error:  # a wrong pattern or a byte without rank may be a panic, which is no Exception
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise VocabularyError(f"{file}: {type(error).__name__}: {str(error)[:300]}") from None
        raise
    return RankCoder(encoding, ranks, manner)


def _ranks(file: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            text, rank = line.split()
            ranks[base64.b64decode(text, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise VocabularyError(f"{file}, line {number}: not a base64 text and its rank") from None
    missing = sum(bytes((byte,)) not in ranks for byte in range(256))
    if missing:
        raise VocabularyError(f"{file} holds no rank for {missing} of the 256 single bytes")
    return ranks


def _manner(directory: Path, ranks: Mapping[bytes, int]) -> Manner:
    own = directory / "tiktoken.json"
    try:
        config = {**read_json(directory / "tokenizer_config.json"), **read_json(own)}
    except ValueError as error:
        raise VocabularyError(f"{directory}: {error}") from error
    pattern = config.get("pattern") or config.get("pat_str")
    if not isinstance(pattern, str):
        raise VocabularyError(
            f'{own} must name the pattern of a word, as {{"pattern": ..., "special_tokens": {{text: id}}}}'
        )
    special = _special_tokens(config, own, set(ranks.values()))
    form = config.get("normalization")
    if form is not None and form not in FORMS:
        raise VocabularyError(f"{own}: normalization is {str(form)[:40]!r}; allowed are {', '.join(FORMS)}")
    return Manner(
        pattern,
        special,
        cast("Form | None", form),
        before=_frame(config, "bos", special, own),
        behind=_frame(config, "eos", special, own),
    )


def _special_tokens(config: Mapping[str, Any], file: Path, taken: set[int]) -> dict[str, int]:
    given = config.get("special_tokens")
    if given is None:
        decoder = config.get("added_tokens_decoder") or {}
        given = {
            entry.get("content"): int(key) if key.isdecimal() else key
            for key, entry in (decoder.items() if isinstance(decoder, dict) else ())
            if isinstance(entry, dict)
        }
    if not isinstance(given, dict):
        raise VocabularyError(f"{file}: special_tokens must be an object, text -> id")
    for text, number in given.items():
        if not isinstance(text, str) or not text or type(number) is not int or not 0 <= number <= MAX_ID:
            raise VocabularyError(
                f"{file}: special token {str(text)[:80]!r} has no id between 0 and {MAX_ID}"
            )
        if number in taken:
            raise VocabularyError(
                f"{file}: special token {text[:80]!r} has the id {number}, which a word has"
            )
    return given


def _frame(config: Mapping[str, Any], name: str, special: Mapping[str, int], file: Path) -> tuple[int, ...]:
    if config.get(f"add_{name}_token") is not True:
        return ()
    token = config.get(f"{name}_token")
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str) or text not in special:
        raise VocabularyError(f"{file}: add_{name}_token is set, and {name}_token is no special token")
    return (special[text],)
