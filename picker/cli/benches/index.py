"""`picker bench index`."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.table import Table

from picker.bench.budget import Result
from picker.bench.index import dynamo
from picker.bench.index.page import BESIDE, HASH, MATCH, UPKEEP, upkeep_rows
from picker.bench.index.run import QUICK, Size, run
from picker.cli.benches.output import finish, progress, table


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
    shown = [
        table("Upkeep", UPKEEP, upkeep_rows(numbers)),
        table("Hashes of a prompt, p50", HASH, numbers["hash"]),
        table("Match from ready hashes", MATCH, numbers["match"]),
        table("Match, a tenth of the blocks in a second tier", MATCH, numbers["match_two_tiers"]),
    ]
    if "beside" in numbers:
        shown.append(table(f"Beside {dynamo.PACKAGE}, p50 by the wall", BESIDE, numbers["beside"]))
    return shown
