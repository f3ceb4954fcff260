"""
Rows of the trace as chat requests.

A block's number alone decides its words, and a message's place alone decides its speaker, so that rows with equal
leading numbers render to equal leading tokens. Sizes are scaled down: 512 tokens of the trace become about 56 of the
demo model's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from picker.sim.load import Arrival
from picker.sim.words import WORDS

SAMPLE = Path(__file__).resolve().parent / "conversation.jsonl"

BLOCK_TOKENS = 512
"""Tokens of the trace that one number stands for."""

BLOCK_WORDS = 44
"""Words that stand for a whole block."""

SENTENCE_WORDS = 11
MESSAGE_BLOCKS = 3
"""Blocks that make one message, the last one of a row may have fewer."""

OUTPUT_SHARE = 1 / 8
"""How answers' lengths are scaled."""

TICK_SECONDS = 3.0
"""The trace's clock: rows of one tick are spread over it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request of the trace: arrival in seconds, lengths in the trace's tokens, the prompt's blocks."""

    at: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]

    @property
    def output_tokens(self) -> int:
        """Length of the answer to ask for, scaled down."""
        return max(4, round(self.output_length * OUTPUT_SHARE))


def sample(path: Path = SAMPLE) -> list[Row]:
    """The rows of a trace file in order of arrival, times from the first one on, those of one tick spread over it."""
    raw = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    ticks: dict[int, int] = {}
    for each in raw:
        ticks[each["timestamp"]] = ticks.get(each["timestamp"], 0) + 1
    rows: list[Row] = []
    placed: dict[int, int] = {}
    for each in raw:
        stamp = each["timestamp"]
        place = placed.get(stamp, 0)
        placed[stamp] = place + 1
        at = (stamp - raw[0]["timestamp"]) / 1000 + TICK_SECONDS * place / ticks[stamp]
        rows.append(Row(at, each["input_length"], each["output_length"], tuple(each["hash_ids"])))
    return sorted(rows, key=lambda row: row.at)


@lru_cache(maxsize=65_536)
def _stretch(block: int) -> tuple[str, ...]:
    """The words of a block."""
    draws = hashlib.shake_256(block.to_bytes(8, "big")).digest(2 * BLOCK_WORDS)
    words = [WORDS[int.from_bytes(draws[at : at + 2], "big") % len(WORDS)] for at in range(0, len(draws), 2)]
    for at in range(SENTENCE_WORDS - 1, BLOCK_WORDS, SENTENCE_WORDS):
        words[at] += "."
    return tuple(words)


def messages(row: Row) -> list[dict[str, str]]:
    """
    The row as a chat: a system message (its first block), then user and assistant by turns, then a short question.

    Equal leading `hash_ids` give equal leading text, up to the last block of the shorter row, which may be cut.
    """
    words = [list(_stretch(block)) for block in row.hash_ids]
    if words:
        rest = row.input_length - BLOCK_TOKENS * (len(words) - 1)
        words[-1] = words[-1][: max(1, round(BLOCK_WORDS * rest / BLOCK_TOKENS))]
    chat = [{"role": "system", "content": " ".join(words[0])}] if words else []
    for turn, begin in enumerate(range(1, len(words), MESSAGE_BLOCKS)):
        text = " ".join(word for part in words[begin : begin + MESSAGE_BLOCKS] for word in part)
        chat.append({"role": ("user", "assistant")[turn % 2], "content": text})
    chat.append({"role": "user", "content": "Please go on."})
    return chat


def arrivals(rows: Iterable[Row], *, speed: float = 1.0, model: str) -> Sequence[Arrival]:
    """The rows as streaming chat requests, `speed` times as fast as they came."""
    return [
        Arrival(
            at=row.at / speed,
            body={
                "model": model,
                "messages": messages(row),
                "max_tokens": row.output_tokens,
                "ignore_eos": True,
            },
        )
        for row in rows
    ]
