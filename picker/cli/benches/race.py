"""`picker bench race`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click
from rich.table import Table

from picker.bench.budget import Result
from picker.bench.fleet import quiet_logs
from picker.bench.race.page import EVEN, ROWS, SWEEP
from picker.bench.race.run import QUICK, Extent, run
from picker.cli.benches.output import finish, progress, table


@click.command("race")
@click.option("--quick", is_flag=True, help="Small sizes, under a minute: for tests.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first run.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, nothing else.")
def command(*, quick: bool, seed: int, as_json: bool) -> None:
    """How far the race between choosing and booking spoils balance, in each mode with 1, 2, 4, 8 replicas.

    First in real processes on a real Valkey, then in virtual time with the staleness measured in this run. Takes about
    twenty minutes unless --quick.
    """
    quiet_logs()
    result = asyncio.run(run(QUICK if quick else Extent(), seed=seed, say=progress))
    finish(result, _tables, as_json=as_json)


def _tables(result: Result) -> Sequence[Table]:
    numbers = result.numbers
    return [
        table("Rows", ROWS | {"time": "time"}, numbers["rows"]),
        table("As even as one replica", EVEN, numbers["even"]),
        table("From where on atomic pays", SWEEP, numbers["threshold"]["sweep"]),
    ]
