r"""
Byte-level BPE read straight from a `tokenizer.json`, without the library that wrote it.

The pre-tokenizer's pattern is taken as written; what Python's `re` spells otherwise (`\p{L}`, `\p{N}`, `\s`) is
written out as ranges of code points.
"""

from __future__ import annotations

import heapq
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_WHITE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"


class TokenizerError(ValueError):
    """The tokenizer file asks for something that the simulated engine does not do; the message names it."""


@cache
def _category(letter: str) -> str:
    """All code points of a Unicode major category, as the inside of a character class."""
    ranges: list[str] = []
    start = -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == letter
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    return "".join(ranges)


def translate(pattern: str) -> str:
    r"""An Oniguruma pattern in the spelling of Python's `re`: `\p{X}`, `\s` and `\S` become explicit classes."""
    out: list[str] = []
    inside = False
    for piece in re.findall(r"\\p\{\w+\}|\\P\{\w+\}|\\.|.", pattern, re.DOTALL):
        if piece[:2] in ("\\p", "\\P", "\\s", "\\S"):
            ranges = _WHITE if piece[1] in "sS" else _category(_major(piece[3:-1]))
            negated = piece[1] in "PS"
            if inside and negated:
                raise TokenizerError(f"the pre-tokenizer's pattern negates {piece} inside a class")
            out.append(ranges if inside else f"[{'^' if negated else ''}{ranges}]")
            continue
        if piece == "[" and not inside:
            inside = True
        elif piece == "]" and inside:
            inside = False
        out.append(piece)
    return "".join(out)


def _major(name: str) -> str:
    if len(name) != 1:
        raise TokenizerError(
            f"the pre-tokenizer's pattern uses \\p{{{name}}}; only major categories are known"
        )
    return name


def byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in a byte-level vocabulary (the GPT-2 table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    spare = 0x100
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(spare)
            spare += 1
    return letters


class BytePairs:
    """Words into token ids by the merges of one vocabulary, with a bounded memory of words already merged."""

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Iterable[Sequence[str]], *, memory: int = 50_000
    ) -> None:
        letters = byte_letters()
        self._byte_ids = [vocabulary[letters[byte]] for byte in range(256)]
        self._merged: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (left, right) in enumerate(merges):
            self._merged.setdefault((vocabulary[left], vocabulary[right]), (rank, vocabulary[left + right]))
        self._words: dict[str, tuple[int, ...]] = {}
        self._memory = memory

    def word(self, word: str) -> tuple[int, ...]:
        """The ids of one pre-tokenized word."""
        known = self._words.get(word)
        if known is not None:
            return known
        ids = tuple(self._merge([self._byte_ids[byte] for byte in word.encode("utf-8", "replace")]))
        if len(word) <= 64:
            if len(self._words) >= self._memory:
                self._words.clear()
            self._words[word] = ids
        return ids

    def _merge(self, ids: list[int]) -> list[int]:
        """Lowest rank first, leftmost first among equals; n log n, so that a hostile long word costs no minutes."""
        count = len(ids)
        after = list(range(1, count + 1))
        before = list(range(-1, count - 1))
        heap: list[tuple[int, int, int, int]] = []
        for at in range(count - 1):
            found = self._merged.get((ids[at], ids[at + 1]))
            if found:
                heap.append((found[0], at, ids[at], ids[at + 1]))
        heapq.heapify(heap)
        while heap:
            _, at, left, right = heapq.heappop(heap)
            other = after[at]
            if ids[at] != left or other >= count or ids[other] != right:
                continue
            ids[at], ids[other] = self._merged[left, right][1], -1
            after[at] = after[other]
            if after[other] < count:
                before[after[other]] = at
            for start in (before[at], at):
                stop = after[start] if start >= 0 else count
                found = self._merged.get((ids[start], ids[stop])) if start >= 0 and stop < count else None
                if found:
                    heapq.heappush(heap, (found[0], start, ids[start], ids[stop]))
        return [each for each in ids if each >= 0]


class Tokenizer:
    """Text to ids and back, from a model directory's `tokenizer.json` (byte-level BPE only)."""

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        model = data["model"]
        if model.get("type", "BPE") != "BPE" or model.get("byte_fallback") or model.get("ignore_merges"):
            raise TokenizerError(f"{path} is no plain byte-level BPE; the simulated engine reads no other")
        if data.get("post_processor") and data["post_processor"]["type"] != "ByteLevel":
            raise TokenizerError(
                f"{path} has the post-processor {data['post_processor']['type']}; none is known"
            )
        self._nfc = _normalizes(data.get("normalizer"), path)
        self._pattern = re.compile(translate(_split_pattern(data.get("pre_tokenizer"), path)))
        self._vocabulary: dict[str, int] = model["vocab"]
        merges = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
        self._size: int = (
            max([*self._vocabulary.values(), *(each["id"] for each in data.get("added_tokens", []))]) + 1
        )
        self._pairs = BytePairs(self._vocabulary, merges)
        self._added: dict[str, int] = {each["content"]: each["id"] for each in data.get("added_tokens", [])}
        longest_first = sorted(self._added, key=len, reverse=True)
        self._specials = (
            re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
        )
        bytes_of = {letter: byte for byte, letter in byte_letters().items()}
        self._bytes = {
            number: bytes(bytes_of[each] for each in word)
            for word, number in self._vocabulary.items()
            if all(each in bytes_of for each in word)
        }
        self._bytes.update({number: word.encode() for word, number in self._added.items()})

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens written in it count as themselves."""
        ids: list[int] = []
        for piece in self._specials.split(text) if self._specials else [text]:
            number = self._added.get(piece)
            if number is not None:
                ids.append(number)
                continue
            if self._nfc:
                piece = unicodedata.normalize("NFC", piece)
            for word in self._cut(piece):
                ids += self._pairs.word(word)
        return ids

    def _cut(self, text: str) -> Iterable[str]:
        """What the pattern matches, and what lies between matches, each a word of its own."""
        end = 0
        for found in self._pattern.finditer(text):
            if found.start() > end:
                yield text[end : found.start()]
            if found.end() > found.start():
                yield found[0]
            end = found.end()
        if end < len(text):
            yield text[end:]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; bytes that are no UTF-8 on their own become the replacement character."""
        return b"".join(self._bytes.get(each, b"") for each in ids).decode("utf-8", "replace")

    def special(self, word: str) -> int | None:
        """The id of an added token, None where there is none of that name."""
        return self._added.get(word)

    def words(self) -> list[int]:
        """Tokens that are one lower-case word after a space: any row of them decodes and encodes to itself."""
        plain = re.compile(r"\u0120[a-z]{3,}")
        return sorted(
            number
            for word, number in self._vocabulary.items()
            if plain.fullmatch(word) and self._pairs.word(" " + word[1:]) == (number,)
        )


def _normalizes(normalizer: Mapping[str, Any] | None, path: Path) -> bool:
    if normalizer and normalizer["type"] != "NFC":
        raise TokenizerError(f"{path} has the normalizer {normalizer['type']}; only NFC is known")
    return bool(normalizer)


def _split_pattern(pre: Mapping[str, Any] | None, path: Path) -> str:
    """The one pattern of a pre-tokenizer of the form Split + ByteLevel."""
    steps = pre.get("pretokenizers", [pre]) if pre else []
    kinds = [each["type"] for each in steps]
    if (
        kinds != ["Split", "ByteLevel"]
        or steps[1].get("use_regex", True)
        or steps[1].get("add_prefix_space", True)
    ):
        raise TokenizerError(
            f"{path} has the pre-tokenizer {kinds}; only Split and plain ByteLevel are known"
        )
    if steps[0]["behavior"] not in ("Isolated", "isolated") or steps[0].get("invert"):
        raise TokenizerError(f"{path} splits by {steps[0]['behavior']}; only isolated splits are known")
    return str(steps[0]["pattern"]["Regex"])
