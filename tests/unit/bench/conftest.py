"""A small trace of conversations that fit a small fleet."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest


def lines_of(rows: Sequence[tuple[int, int, int, Sequence[int]]]) -> str:
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Eleven conversations of eight turns, interleaved; each turn extends the one before by a block."""
    rng, rows = random.Random(4), []
    for turn in range(8):
        for talk in range(11):
            ids = [0, *range(1000 * talk + 1, 1000 * talk + 3 + turn)]
            rows.append((turn * 9_000 + talk * 300 + rng.randrange(200), 512 * len(ids) - 7, 20, ids))
    path = tmp_path / "talks.jsonl"
    path.write_text(lines_of(sorted(rows)))
    return path
