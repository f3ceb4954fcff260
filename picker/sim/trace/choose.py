"""
Take the sample from the full trace; run by hand: `python -m picker.sim.trace.choose conversation_trace.jsonl`.

Whole conversations are taken: all rows that share their second block (the first is common to the whole trace), where
there are several turns, none too long, all within the first stretch of the trace, and later turns extend earlier ones.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from picker.sim.trace.trace import SAMPLE

ROWS = 420
TURNS = range(3, 17)
BLOCKS = range(4, 41)
UNTIL = 1_200_000
"""Milliseconds of the trace from which conversations are taken."""

LEAST_REUSE = 0.5
"""Share of a conversation's blocks, after its first turn, that an earlier turn had at the same place."""


def reuse(chains: Iterable[Sequence[int]]) -> float:
    """Share of the later chains' blocks that lie on an earlier chain's prefix."""
    seen: set[tuple[int, int]] = set()
    found = total = 0
    for turn, chain in enumerate(chains):
        at_prefix = True
        for place in enumerate(chain):
            at_prefix = at_prefix and place in seen
            if turn:
                total += 1
                found += at_prefix
        seen.update(enumerate(chain))
    return found / total if total else 0.0


def choose(lines: Sequence[str]) -> list[str]:
    """The chosen lines, in their order."""
    families: dict[int, list[int]] = defaultdict(list)
    rows = [json.loads(line) for line in lines]
    for number, row in enumerate(rows):
        if len(row["hash_ids"]) > 1:
            families[row["hash_ids"][1]].append(number)
    chosen: list[int] = []
    for numbers in families.values():
        chains = [rows[number]["hash_ids"] for number in numbers]
        if (
            len(numbers) in TURNS
            and all(len(chain) in BLOCKS for chain in chains)
            and rows[numbers[-1]]["timestamp"] <= UNTIL
            and reuse(chains) >= LEAST_REUSE
            and len(chosen) + len(numbers) <= ROWS
        ):
            chosen += numbers
    return [lines[number] for number in sorted(chosen)]


if __name__ == "__main__":
    SAMPLE.write_text(
        "".join(choose(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines(keepends=True)))
    )
