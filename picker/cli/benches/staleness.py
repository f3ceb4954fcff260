"""`picker bench staleness`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click
from rich.table import Table

from picker.bench.budget import Result
from picker.bench.fleet import quiet_logs
from picker.bench.servers import BACKENDS
from picker.bench.staleness.page import ENVELOPE, STALENESS, envelope_rows, staleness_rows
from picker.bench.staleness.run import QUICK, Extent, run
from picker.cli.benches.output import finish, progress, table


@click.command("staleness")
@click.option("--quick", is_flag=True, help="Small sizes, seconds: for tests.")
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, help="Default: all.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, nothing else.")
def command(*, quick: bool, backends: tuple[str, ...], seed: int, as_json: bool) -> None:
    """How late a replica's view hears of what another one booked, between real processes, beside a bare hop.

    Then the envelope: what following the plane costs by replicas and changes per second.
    """
    quiet_logs()
    extent = QUICK if quick else Extent()
    result = asyncio.run(run(extent, backends=backends or BACKENDS, seed=seed, say=progress))
    finish(result, _tables, as_json=as_json)


def _tables(result: Result) -> Sequence[Table]:
    return [
        table("Staleness", STALENESS, staleness_rows(result.numbers)),
        table("Envelope", ENVELOPE, envelope_rows(result.numbers)),
    ]
