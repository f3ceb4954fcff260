"""The same prompts through the index of `ai-dynamo-runtime`, where that package is installed.

Its tree answers from a thread of its own, so both sides are timed by the wall, by turns. Its hash of a prompt is that
of each block alone; ours is chained. Its answer is a dictionary of scores; ours, to be fair, is the whole dense vector.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from picker.bench.index.lookup import BLOCK_TOKENS, CASES, Prompt, place, prompts
from picker.bench.index.population import names
from picker.bench.timing import percentile, wall_us
from picker.core.blocks import sequence_hashes
from picker.core.index import PrefixIndex

PACKAGE = "ai-dynamo-runtime"

WAYS = 4
"""Both indexes, from ready hashes and from token ids."""


def installed() -> str:
    """The package's version; empty where it is not installed or cannot be loaded."""
    try:
        import_module("dynamo.llm")
        return version(PACKAGE)
    except (ImportError, PackageNotFoundError):
        return ""


@dataclass(frozen=True, slots=True)
class _Other:
    """What is used of the package."""

    tree: Any
    hashes: Callable[[list[int], int], list[int]]

    def place(self, workers: Sequence[str], prompt: Prompt, own: list[int]) -> None:
        for number, worker in enumerate(workers):
            held = prompt.held if worker == prompt.holder else prompt.common
            if held:
                self._store(number, prompt.hashes[:held], own[:held])

    def _store(self, worker: int, chained: Sequence[int], own: Sequence[int]) -> None:
        blocks = [
            {"block_hash": whole, "tokens_hash": alone, "mm_extra_info": None}
            for whole, alone in zip(chained, own, strict=True)
        ]
        event = {"event_id": 0, "data": {"stored": {"parent_hash": None, "blocks": blocks}}, "dp_rank": 0}
        self.tree.apply_event(worker, json.dumps(event).encode())

    def best(self, own: list[int]) -> int:
        return max(self.tree.find_matches(own).scores.values(), default=0)


def side_by_side(
    workers: int, sizes: Sequence[int], *, each: int, rounds: int, rng: random.Random
) -> list[dict[str, Any]]:
    """Rows of both, for one number of workers: from ready hashes, and from token ids to the best worker."""
    module = import_module("dynamo.llm")
    other = _Other(module.RadixTree(), module.compute_block_hash_for_seq)
    index, pool = PrefixIndex(), names(workers)
    for worker in pool:
        index.add(worker)
    asked = [prompt for blocks in sizes for prompt in prompts(pool, blocks, each, rng)]
    own = {id(prompt): other.hashes(prompt.tokens, BLOCK_TOKENS) for prompt in asked}
    for prompt in asked:
        place(index, pool, prompt)
        other.place(pool, prompt, own[id(prompt)])
        found = index.match(prompt.hashes).best, other.best(own[id(prompt)])
        assert found[0] == found[1], f"the two do not agree on a prompt of case {prompt.case}: {found}"
    rng.shuffle(asked)
    took: dict[tuple[int, str], list[list[float]]] = {}
    for number in range(WAYS * rounds):
        way = number % WAYS
        for prompt in asked:
            row = took.setdefault((len(prompt.hashes), prompt.case), [[] for _ in range(WAYS)])
            row[way].append(wall_us(_way(way, index, other, prompt, own[id(prompt)], pool[0])))
    return [_row(workers, blocks, case, took[blocks, case]) for blocks in sizes for case in CASES]


def _way(
    way: int, index: PrefixIndex, other: _Other, prompt: Prompt, own: list[int], worker: str
) -> Callable[[], object]:
    """Ours and theirs from ready hashes, ours and theirs from token ids; each goes through all prompts by itself."""
    tokens, hashes = prompt.tokens, prompt.hashes
    ways: tuple[Callable[[], object], ...] = (
        lambda: index.match(hashes).overlap(worker),
        lambda: other.tree.find_matches(own).scores,
        lambda: index.match(sequence_hashes(tokens, BLOCK_TOKENS)).overlap(worker),
        lambda: other.best(other.hashes(tokens, BLOCK_TOKENS)),
    )
    return ways[way]


def _row(workers: int, blocks: int, case: str, took: Sequence[Sequence[float]]) -> dict[str, Any]:
    ours, theirs, ours_whole, theirs_whole = (percentile(each, 0.5) for each in took)
    return {
        "workers": workers,
        "blocks": blocks,
        "case": case,
        "p50_us": round(ours, 2),
        "dynamo_p50_us": round(theirs, 2),
        "ratio": round(theirs / ours, 2),
        "from_tokens_p50_us": round(ours_whole, 1),
        "dynamo_from_tokens_p50_us": round(theirs_whole, 1),
        "from_tokens_ratio": round(theirs_whole / ours_whole, 2),
    }
