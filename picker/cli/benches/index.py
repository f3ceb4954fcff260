"""`picker bench index`."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.table import Table

from picker.bench.budget import Result
from picker.bench.index import dynamo
from picker.bench.index.run import QUICK, Size, run
from picker.cli.benches.output import finish, progress, table

MATCH = {
    "workers": "workers",
    "blocks": "blocks",
    "case": "case",
    "p50_us": "runs p50 us",
    "p99_us": "p99",
    "dense_p50_us": "laid out p50 us",
    "dense_p99_us": "p99",
}
BESIDE = {
    "workers": "workers",
    "blocks": "blocks",
    "case": "case",
    "p50_us": "ours us",
    "dynamo_p50_us": "theirs us",
    "ratio": "ratio",
    "from_tokens_p50_us": "from tokens: ours us",
    "dynamo_from_tokens_p50_us": "theirs us",
    "from_tokens_ratio": "ratio",
}


@click.command("index")
@click.option("--quick", is_flag=True, help="Small sizes, seconds: for tests.")
@click.option(
    "--beside/--alone",
    default=None,
    help="Also ask ai-dynamo-runtime the same; default: where it is installed.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, nothing else.")
def command(*, quick: bool, beside: bool | None, seed: int, as_json: bool) -> None:
    """The prefix index by itself: hash, growth, memory, apply, clear, match, oracle, in one run.

    CPU time of the thread, so that a busy machine says nearly the same; needs about 1 GB of memory unless --quick.
    """
    there = dynamo.installed()
    if beside and not there:
        raise click.ClickException(
            f"{dynamo.PACKAGE} is not installed beside the picker: pip install {dynamo.PACKAGE}, or leave out --beside"
        )
    size = QUICK if quick else Size()
    result = run(size, seed=seed, beside=bool(there) if beside is None else beside, say=progress)
    finish(result, _tables, as_json=as_json)


def _tables(result: Result) -> Sequence[Table]:
    numbers = result.numbers
    upkeep = [
        {"what": "memory, bytes per entry", "value": numbers["bytes_per_entry"]},
        {"what": "apply, blocks per second", "value": numbers["apply_blocks_per_s"]},
        {"what": "growth, blocks per second", "value": numbers["growth"]["blocks_per_s"]},
        {"what": "growth, longest event, ms", "value": numbers["growth_max_pause_ms"]},
        {"what": "clear, until exact, us", "value": numbers["clear"]["at_once_us"]},
        {"what": "clear, longest step, ms", "value": numbers["clear_max_pause_ms"]},
        {"what": "oracle, queries", "value": numbers["oracle"]["queries"]},
        {"what": "oracle, wrong", "value": numbers["oracle"]["wrong"]},
    ]
    hashes = {
        "tokens": "tokens",
        "block_size": "block",
        "list_p50_us": "list us",
        "packed_p50_us": "packed us",
    }
    shown = [
        table("Upkeep", {"what": "", "value": ""}, upkeep),
        table("Hashes of a prompt, p50", hashes, numbers["hash"]),
        table("Match from ready hashes", MATCH, numbers["match"]),
        table("Match, a tenth of the blocks in a second tier", MATCH, numbers["match_two_tiers"]),
    ]
    if "beside" in numbers:
        shown.append(table(f"Beside {dynamo.PACKAGE}, p50 by the wall", BESIDE, numbers["beside"]))
    return shown
