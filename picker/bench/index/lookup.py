"""What a pick asks: hashes of a prompt, then who holds how much of it."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from picker.bench.index.population import grow, names
from picker.bench.timing import clock_us, cpu_us, percentile
from picker.core.blocks import sequence_hashes
from picker.core.index import HOST, PrefixIndex

CASES = ("shared", "full", "half", "miss")
"""shared: all workers hold a system prompt, one of them half of the rest. full, half: one worker holds all of the
prompt, or its first half. miss: nobody holds any of it."""

SYSTEM_BLOCKS = 100
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and who holds what of it."""

    case: str
    tokens: list[int]
    hashes: list[int]
    holder: str
    """The worker that holds the most of it; empty: none does."""
    held: int
    """Blocks that the holder holds."""
    common: int
    """Leading blocks that every worker holds."""


def prompts(workers: Sequence[str], blocks: int, each: int, rng: random.Random) -> Iterator[Prompt]:
    """So many prompts of each case, all different."""
    common = min(SYSTEM_BLOCKS, blocks // 2)
    system = _tokens(rng, common)
    held = {"shared": common + (blocks - common) // 2, "full": blocks, "half": blocks // 2, "miss": 0}
    for _ in range(each):
        for case in CASES:
            head = system if case == "shared" else []
            tokens = head + _tokens(rng, blocks - len(head) // BLOCK_TOKENS)
            holder = rng.choice(list(workers)) if held[case] else ""
            hashes = sequence_hashes(tokens, BLOCK_TOKENS)
            yield Prompt(case, tokens, hashes, holder, held[case], common if case == "shared" else 0)


def place(index: PrefixIndex, workers: Sequence[str], prompt: Prompt, *, tiered: bool = False) -> None:
    """Let the workers hold what the prompt says; ``tiered``: the holder has the last tenth of it in its second tier."""
    if prompt.common:
        for worker in workers:
            index.store(worker, prompt.hashes[: prompt.common])
    if prompt.holder:
        lower = prompt.held - prompt.held // 10 if tiered else prompt.held
        index.store(prompt.holder, prompt.hashes[:lower])
        index.store(prompt.holder, prompt.hashes[lower : prompt.held], HOST)


def match_rows(
    workers: int,
    sizes: Sequence[int],
    *,
    background: int,
    each: int,
    rounds: int,
    rng: random.Random,
    tiered: bool = False,
) -> list[dict[str, Any]]:
    """Rows of `match`, for one number of workers; ``tiered``: a tenth of all blocks lies in a second tier.

    The index holds ``background`` entries beside the prompts. Prompts of all sizes and cases are asked by turns, so
    that none is still warm from the time before. ``p50_us`` is the answer as runs, ``dense_p50_us`` the answer laid
    out for every worker, as a pick reads it.
    """
    index, pool = PrefixIndex(), names(workers)
    grow(index, pool, background, rng, tiered=tiered)
    asked = [prompt for blocks in sizes for prompt in prompts(pool, blocks, each, rng)]
    for prompt in asked:
        place(index, pool, prompt, tiered=tiered)
        _check(index, prompt)
    rng.shuffle(asked)
    clock = clock_us()
    runs: dict[tuple[int, str], list[float]] = {}
    dense: dict[tuple[int, str], list[float]] = {}
    for number in range(2 * rounds):
        for prompt in asked:
            key, hashes = (len(prompt.hashes), prompt.case), prompt.hashes
            if number % 2:
                dense.setdefault(key, []).append(_dense_us(index, hashes, pool[0]) - clock)
            else:
                runs.setdefault(key, []).append(_runs_us(index, hashes) - clock)
    return [
        {
            "workers": workers,
            "blocks": blocks,
            "case": case,
            "p50_us": round(percentile(runs[blocks, case], 0.5), 2),
            "p99_us": round(percentile(runs[blocks, case], 0.99), 2),
            "dense_p50_us": round(percentile(dense[blocks, case], 0.5), 2),
            "dense_p99_us": round(percentile(dense[blocks, case], 0.99), 2),
        }
        for blocks in sizes
        for case in CASES
    ]


def _runs_us(index: PrefixIndex, hashes: Sequence[int]) -> float:
    return cpu_us(lambda: index.match(hashes))


def _dense_us(index: PrefixIndex, hashes: Sequence[int], worker: str) -> float:
    """The first worker asked for lays out the answer for all of them."""
    return cpu_us(lambda: index.match(hashes).overlap(worker))


def hash_rows(sizes: Sequence[int], rounds: int, rng: random.Random) -> list[dict[str, Any]]:
    """CPU time from a prompt's token ids to its sequence hashes: from a list, and from ids that are packed already."""
    rows = []
    for tokens in sizes:
        listed = [rng.getrandbits(17) for _ in range(tokens)]
        packed = array("I", listed)
        for size in (16, 64):
            slow, fast = _hash_us(listed, size, rounds), _hash_us(packed, size, rounds)
            rows.append({"tokens": tokens, "block_size": size, "list_p50_us": slow, "packed_p50_us": fast})
    return rows


def _hash_us(tokens: Sequence[int], size: int, rounds: int) -> float:
    clock = clock_us()
    took = [cpu_us(lambda: sequence_hashes(tokens, size)) - clock for _ in range(rounds)]
    return round(percentile(took, 0.5), 1)


def _tokens(rng: random.Random, blocks: int) -> list[int]:
    return [rng.getrandbits(17) for _ in range(blocks * BLOCK_TOKENS)]


def _check(index: PrefixIndex, prompt: Prompt) -> None:
    """The bench measures right answers only."""
    match = index.match(prompt.hashes)
    assert match.best == max(prompt.held, prompt.common), (prompt.case, match.best, prompt.held)
    if prompt.holder:
        assert match.overlap(prompt.holder).total == prompt.held
