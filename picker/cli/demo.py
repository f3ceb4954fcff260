"""`picker demo`: what the picker gains, and what a replica's death costs, on one page."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
import click
from rich.console import Console

from picker.cli.files import in_a_folder
from picker.sim.board import Board, Story, summary
from picker.sim.cluster import Cluster
from picker.sim.demo import Demo, layout, requests_of_the_trace
from picker.sim.processes import ProcessError, interruptible
from picker.sim.score import Score


@click.command("demo")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the numbers there."
)
@click.option("--requests", type=click.IntRange(min=20), help="Only the first so many requests of the trace.")
@click.option(
    "--logs", type=click.Path(file_okay=False, path_type=Path), help="Keep logs and configuration there."
)
def command(json_file: Path | None, requests: int | None, logs: Path | None) -> None:
    """Replay a published trace round robin and through three replicas, kill one, say what happened.

    Starts a local cluster of its own and ends it. Exit status 0 only if every promise held.
    """
    in_a_folder("--json", json_file)
    console = Console(highlight=False)
    try:
        found = asyncio.run(_run(console, requests, logs))
    except (ProcessError, RuntimeError, aiohttp.ClientError, OSError) as error:
        click.echo(f"picker demo: {error or type(error).__name__}", err=True)
        sys.exit(1)
    if found is None:
        click.echo("picker demo: interrupted", err=True)
        sys.exit(130)
    score, story = found
    console.print(summary(score, story))
    if json_file:
        json_file.write_text(json.dumps(score.as_json(), indent=2, allow_nan=False) + "\n")
    sys.exit(1 if score.faults() else 0)


async def _run(console: Console, requests: int | None, logs: Path | None) -> tuple[Score, Story] | None:
    wanted = requests_of_the_trace(requests)
    board = Board(console)

    async def work() -> tuple[Score, Story]:
        async with (
            Cluster(layout(), say=board.say, logs=logs) as cluster,
            aiohttp.ClientSession() as session,
        ):
            with board:
                found = await cluster.while_running(Demo(cluster, board, session).run(wanted))
            if found[0].faults():
                cluster.keep_logs()
            return found

    return await interruptible(work())
