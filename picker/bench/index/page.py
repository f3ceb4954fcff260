"""The index's numbers as rows, and as a section of the documentation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picker.bench.markdown import markdown_table, measured_on

UPKEEP = {"what": "what", "value": "measured"}
HASH = {"tokens": "tokens", "block_size": "block", "list_p50_us": "list us", "packed_p50_us": "packed us"}
MATCH = {
    "workers": "workers",
    "blocks": "blocks",
    "case": "case",
    "p50_us": "runs p50 us",
    "p99_us": "p99 us",
    "dense_p50_us": "laid out p50 us",
    "dense_p99_us": "p99 us ",
}
BESIDE = {
    "workers": "workers",
    "blocks": "blocks",
    "case": "case",
    "p50_us": "ours us",
    "dynamo_p50_us": "theirs us",
    "ratio": "theirs / ours",
    "from_tokens_p50_us": "ours from tokens us",
    "dynamo_from_tokens_p50_us": "theirs from tokens us",
    "from_tokens_ratio": "theirs / ours ",
}


def upkeep_rows(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Memory, applying, growing, clearing, and the oracle."""
    values = {
        "memory, bytes per entry": numbers["bytes_per_entry"],
        "apply, blocks per second": numbers["apply_blocks_per_s"],
        "growth, blocks per second": numbers["growth"]["blocks_per_s"],
        "growth, longest event, ms": numbers["growth_max_pause_ms"],
        "clear, until exact, us": numbers["clear"]["at_once_us"],
        "clear, longest step of the sweep, ms": numbers["clear_max_pause_ms"],
        "oracle, queries": numbers["oracle"]["queries"],
        "oracle, wrong answers": numbers["oracle"]["wrong"],
    }
    return [{"what": what, "value": value} for what, value in values.items()]


def index_section(numbers: Mapping[str, Any]) -> str:
    """All of it, budgets first."""
    parts = [
        "## The prefix index\n",
        "`picker bench index` grows an index, applies events to it, clears a worker of it, asks it, and holds it to",
        "the naive definition, all in one run. *Runs* is the answer as groups of workers with equal prefixes, *laid",
        "out* the same for every worker, as a pick reads it. Cases: *shared*, all workers hold a system prompt and",
        "one of them half of the rest; *full* and *half*, one worker holds so much of the prompt; *miss*, nobody",
        "holds any of it.\n",
        measured_on(numbers),
        markdown_table(UPKEEP, upkeep_rows(numbers)),
        "From a prompt's token ids to its sequence hashes:\n",
        markdown_table(HASH, numbers["hash"]),
        "From ready hashes:\n",
        markdown_table(MATCH, numbers["match"]),
        "The same with a tenth of all blocks in a second tier. Laid out, each block of a prompt is then looked at;",
        "that has no budget:\n",
        markdown_table(MATCH, numbers["match_two_tiers"]),
    ]
    if "beside" in numbers:
        parts += [
            f"Beside {numbers['conditions']['beside']}, its `RadixTree` and `compute_block_hash_for_seq` asked the",
            "same by turns. Ours is laid out for every worker, theirs is a dictionary of scores; both p50 by the",
            "wall, because theirs answers from a thread of its own:\n",
            markdown_table(BESIDE, numbers["beside"]),
        ]
    return "\n".join(parts)
