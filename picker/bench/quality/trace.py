"""A published trace of requests: when they came, how long they were, and which prefixes they shared.

One JSON object a line, in the form of Mooncake's traces: ``timestamp`` (ms), ``input_length`` and ``output_length``
(tokens), ``hash_ids``: one number per 512 tokens of the prompt, equal numbers at equal places meaning equal prefixes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from picker.core.blocks import sequence_hashes

BLOCK_TOKENS = 512
"""Tokens that one number stands for: the block size of the engines and of the pool."""

DIRECTORY = Path(__file__).resolve().parents[3] / "benchmarks" / "traces"
"""Where a checkout keeps the traces; an installed package does not carry them."""

_ANSWERS = 1 << 31
"""Answers are made of tokens from here on, so that none is mistaken for a prompt's."""


class TraceError(Exception):
    """The trace cannot be read; the message says which and why."""


class _Line(msgspec.Struct):
    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the trace, with the hashes that a picker computes of its prompt."""

    number: int
    at: float
    """Arrival, seconds from the first one."""
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = field(repr=False)
    hashes: tuple[int, ...] = field(repr=False)
    """Sequence hashes of the full blocks."""

    @property
    def blocks(self) -> int:
        """KV blocks of the prompt."""
        return len(self.hash_ids)

    def prompt(self) -> list[int]:
        """The prompt's token ids: each number stands for its block's tokens."""
        return _prompt(self.hash_ids, self.input_length)

    def answer(self) -> list[int]:
        """The token ids of the answer: like nobody else's."""
        return [_ANSWERS + self.number] * max(self.output_length, 1)


def read(path: Path, *, requests: int | None = None, speed: float = 1.0) -> list[Request]:
    """The first so many requests in order of arrival, ``speed`` times as fast as they came.

    Some traces were written with a clock of coarse ticks: requests of one moment are spread evenly until the next one.

    Raises:
        TraceError: there is no such file, or a line of it is not a request.
    """
    lines = _lines(path)[:requests]
    if not lines:
        raise TraceError(f"{path} holds no request")
    moments = sorted({line.timestamp for line in lines})
    lasts = dict(zip(moments, [*moments[1:], moments[-1]], strict=True))
    together = Counter(line.timestamp for line in lines)
    placed: Counter[int] = Counter()
    found = []
    for number, line in enumerate(lines):
        stamp = line.timestamp
        at = stamp + (lasts[stamp] - stamp) * placed[stamp] / together[stamp] - moments[0]
        placed[stamp] += 1
        ids = tuple(line.hash_ids)
        hashes = sequence_hashes(array("I", _prompt(ids, line.input_length)), BLOCK_TOKENS)
        found.append(
            Request(number, at / 1e3 / speed, line.input_length, line.output_length, ids, tuple(hashes))
        )
    return sorted(found, key=lambda request: request.at)


def _lines(path: Path) -> list[_Line]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TraceError(
            f"{path}: {error.strerror or error}. The traces lie in benchmarks/traces of a checkout of the project; "
            "give one with --trace FILE"
        ) from error
    decode, found = msgspec.json.Decoder(_Line).decode, []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            found.append(_checked(decode(line)))
        except (msgspec.MsgspecError, ValueError) as error:
            raise TraceError(f"{path}, line {number}: not a request of a trace: {error}") from error
    return found


def _checked(line: _Line) -> _Line:
    blocks = -(-line.input_length // BLOCK_TOKENS)
    if line.input_length < 1 or len(line.hash_ids) != blocks:
        raise ValueError(
            f"{len(line.hash_ids)} hash_ids for {line.input_length} tokens; {BLOCK_TOKENS} tokens have one"
        )
    if not all(0 <= each < _ANSWERS for each in line.hash_ids):
        raise ValueError(f"hash_ids must lie in 0..{_ANSWERS - 1}")
    return line


def _prompt(ids: Sequence[int], length: int) -> list[int]:
    tokens: list[int] = []
    for each in ids:
        tokens += [each] * BLOCK_TOKENS
    del tokens[length:]
    return tokens
