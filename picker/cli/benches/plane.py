"""`picker bench plane`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click
from rich.table import Table

from picker.bench.budget import Result
from picker.bench.fleet import quiet_logs
from picker.bench.plane.page import CALLS, UPKEEP, call_rows, upkeep_rows
from picker.bench.plane.run import QUICK, Extent, run
from picker.bench.servers import BACKENDS
from picker.cli.benches.output import finish, progress, table


@click.command("plane")
@click.option("--quick", is_flag=True, help="Small sizes, seconds: for tests.")
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, help="Default: all.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, nothing else.")
def command(*, quick: bool, backends: tuple[str, ...], seed: int, as_json: bool) -> None:
    """What the state plane's operations cost beside the bare server: book, release, select, heartbeats, reaping.

    Starts the real servers on loopback. Latencies are held as ratios to the floor in the same run.
    """
    quiet_logs()
    extent = QUICK if quick else Extent()
    result = asyncio.run(run(extent, backends=backends or BACKENDS, seed=seed, say=progress))
    finish(result, _tables, as_json=as_json)


def _tables(result: Result) -> Sequence[Table]:
    return [
        table("Calls", CALLS, call_rows(result.numbers)),
        table("Upkeep", UPKEEP, upkeep_rows(result.numbers)),
    ]
