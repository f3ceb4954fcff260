"""`picker bench quality`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.table import Table

from picker.bench.budget import Result
from picker.bench.quality.fleet import Hardware
from picker.bench.quality.page import ROWS
from picker.bench.quality.run import Setup, run
from picker.bench.quality.trace import DIRECTORY, TraceError
from picker.cli.benches.output import finish, progress, table

TRACES = {"conversation": "conversation_trace.jsonl", "synthetic": "synthetic_trace.jsonl"}


def _replicas(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        counts = tuple(sorted({int(each) for each in value.split(",")}))
    except ValueError:
        counts = ()
    if not counts or not all(1 <= each <= 64 for each in counts):
        raise click.BadParameter(f"{value!r}: numbers of 1 to 64, separated by commas")
    return counts


@click.command("quality")
@click.option(
    "--trace",
    default="conversation",
    show_default=True,
    help="conversation or synthetic, of the checkout's benchmarks/traces, or a file of that form.",
)
@click.option("--requests", type=click.IntRange(1), help="Only the first so many requests.")
@click.option(
    "--speed", type=click.FloatRange(0.01, 1000), default=1.0, show_default=True, help="2: twice as fast."
)
@click.option("--replicas", callback=_replicas, default="1,2,4,8", show_default=True)
@click.option("--engines", type=click.IntRange(1, 1024), default=Hardware().engines, show_default=True)
@click.option(
    "--blocks",
    type=click.IntRange(1),
    default=Hardware().blocks,
    show_default=True,
    help="KV blocks of 512 tokens in each engine.",
)
@click.option(
    "--staleness-ms",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="Until a booking is seen by the other replicas.",
)
@click.option(
    "--event-delay-ms",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Until a change of an engine's cache is seen by the replicas.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=Setup().seeds,
    show_default=True,
    help="So many for what the budget compares.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), help="Runs at one time; default: one per processor, 4 at most."
)
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, nothing else.")
def command(
    *,
    trace: str,
    requests: int | None,
    speed: float,
    replicas: tuple[int, ...],
    engines: int,
    blocks: int,
    staleness_ms: float,
    event_delay_ms: float,
    seed: int,
    seeds: int,
    jobs: int | None,
    as_json: bool,
) -> None:
    """What the decisions are worth: a published trace through simulated engines, in virtual time.

    The decision code is the product's own, in 1, 2, 4, 8 replicas that share their bookings (eventual) or not
    (isolated), against round robin, random, least load, and one picker that knows everything at once.
    """
    path = DIRECTORY / TRACES[trace] if trace in TRACES else Path(trace)
    setup = Setup(
        hardware=replace(Hardware(), engines=engines, blocks=blocks),
        staleness=staleness_ms / 1e3,
        event_delay=event_delay_ms / 1e3,
        replicas=replicas,
        seed=seed,
        seeds=seeds,
    )
    at_once = jobs or min(os.cpu_count() or 1, 4)
    try:
        result = run(path, setup, requests=requests, speed=speed, jobs=at_once, say=progress)
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    finish(result, _tables, as_json=as_json)


def _tables(result: Result) -> Sequence[Table]:
    return [table(str(result.numbers["trace"]), ROWS, result.numbers["rows"])]
