"""`picker bench decide`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import click
from rich.table import Table

from picker.bench.budget import Result
from picker.bench.decide.beside import Other
from picker.bench.decide.extent import (
    KB,
    MIDDLE,
    PARTS,
    QUICK,
    SMALL,
    USUAL,
    USUAL_CELLS,
    Cell,
    Extent,
    Part,
    full_cells,
)
from picker.bench.decide.run import enough_files, run
from picker.bench.decide.script import Mode
from picker.bench.decide.stand import PLANES, TRANSPORTS, Kind, Plane, Transport
from picker.bench.decide.tables import tables_of
from picker.bench.fleet import FleetError, quiet_logs
from picker.cli.benches.output import finish, progress, table
from picker.sim.processes import ProcessError


@click.command("decide")
@click.option("--transport", "transports", type=click.Choice(TRANSPORTS), multiple=True)
@click.option("--plane", "planes", type=click.Choice(PLANES), multiple=True)
@click.option("--workers", type=click.IntRange(1, 5_000), multiple=True)
@click.option("--replicas", type=click.IntRange(1, 16), default=1, show_default=True)
@click.option("--kb", "sizes", type=click.FloatRange(0.25, 4_096), multiple=True, help="Of a request's body.")
@click.option("--index-blocks", type=click.IntRange(0, 10_000_000), default=0, show_default=True)
@click.option("--streams", type=click.IntRange(1, 1_000), default=16, show_default=True, help="At a time.")
@click.option(
    "--mode",
    type=click.Choice(["full_duplex_streamed", "buffered"]),
    default="full_duplex_streamed",
    show_default=True,
    help="How the gateway shows a request's body.",
)
@click.option(
    "--seconds", type=click.FloatRange(0.2, 120), default=2.0, show_default=True, help="Of a round."
)
@click.option(
    "--rate", type=click.FloatRange(0.1), help="Streams/s of the open loop; default: by the body's size."
)
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Default: all of them.")
@click.option("--events", is_flag=True, help="Only what KV events cost: --part events.")
@click.option(
    "--held", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Streams held."
)
@click.option("--against", metavar="HOST:PORT", help="Another ext_proc server, by turns with ours; ratios.")
@click.option("--against-pid", type=click.IntRange(1), help="Its process: for its CPU and memory.")
@click.option(
    "--full", is_flag=True, help="Every transport with every plane and number of workers; half an hour."
)
@click.option("--quick", is_flag=True, help="Small sizes, under a minute: for tests.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, nothing else.")
def command(
    *,
    transports: tuple[Transport, ...],
    planes: tuple[Plane, ...],
    workers: tuple[int, ...],
    replicas: int,
    sizes: tuple[float, ...],
    index_blocks: int,
    streams: int,
    mode: Mode,
    seconds: float,
    rate: float | None,
    parts: tuple[Part, ...],
    events: bool,
    held: int,
    against: str | None,
    against_pid: int | None,
    full: bool,
    quick: bool,
    as_json: bool,
) -> None:
    """What a decision costs: a real replica, driven as Envoy drives it, by a process of its own.

    Processor time of a decision, decisions/s, p50 and p99 at a fixed rate, memory; then what KV events cost beside it,
    what streams cost that wait, what the gateway's own filter costs, and where the time goes. About five minutes.
    What is chosen by --transport, --plane, --workers, --replicas, --kb or --index-blocks alone is measured, by rows.
    """
    quiet_logs()
    extent = QUICK if quick else Extent(
        USUAL_CELLS, streams=streams, mode=mode, seconds=seconds, held=held
    )  # fmt: skip
    bodies = tuple(int(size * KB) for size in sizes)
    chosen = bool(transports or planes or workers or bodies or replicas > 1 or index_blocks)
    if chosen or (against and not quick):
        kinds = product(transports or ("native",), planes or ("off",), workers or (USUAL,))
        cells = tuple(
            Cell(
                Kind(
                    transport=transport,
                    plane="eventual" if replicas > 1 and plane == "off" else plane,
                    workers=count,
                    replicas=replicas,
                    index_blocks=index_blocks,
                ),
                bodies or (SMALL, MIDDLE),
            )
            for transport, plane, count in kinds
        )
        extent = replace(extent, cells=cells, parts=("rows",), whole="chosen")
    elif full:
        extent = replace(extent, cells=tuple(full_cells()), whole="full")
    if parts or events:
        extent = replace(extent, parts=(*parts, *(("events",) if events and "events" not in parts else ())))
    if rate:
        extent = replace(extent, rates={0: rate})
    other = Other(against, against_pid) if against else None
    try:
        with enough_files():
            result = asyncio.run(run(extent, against=other, say=progress))
    except (FleetError, ProcessError, OSError) as error:
        raise click.ClickException(
            str(error) or f"{type(error).__name__}: this machine is too busy"
        ) from error
    finish(result, _tables, as_json=as_json)


def _tables(result: Result) -> Sequence[Table]:
    return [table(title, columns, rows) for title, columns, rows in tables_of(result.numbers)]
