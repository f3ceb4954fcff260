"""`picker up`: a whole local cluster until it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import get_args

import click

from picker.cli.files import in_a_folder
from picker.sim.cluster import Cluster, Layout, LayoutError, Plane
from picker.sim.model import MODEL
from picker.sim.processes import ProcessError, interruptible


@click.command("up")
@click.option(
    "--replicas", default=3, show_default=True, type=click.IntRange(1, 64), help="Replicas of the picker."
)
@click.option(
    "--workers", default=4, show_default=True, type=click.IntRange(1, 256), help="Simulated engines."
)
@click.option(
    "--plane", default="redis", show_default=True, type=click.Choice(get_args(Plane)), help="State plane."
)
@click.option(
    "--sync", default="", type=click.Choice(("", "isolated", "eventual", "atomic")), help="Sync mode."
)
@click.option(
    "--stream-hold",
    default="",
    type=click.Choice(("", "headers", "response")),
    help="Until when streams are held.",
)
@click.option(
    "--fallbacks",
    default=0,
    show_default=True,
    type=click.IntRange(0, 8),
    help="Further endpoints that are named with each pick; the gateway tries them when one cannot serve.",
)
@click.option("--for", "seconds", type=click.FloatRange(min=0), help="Stop by itself after so many seconds.")
@click.option(
    "--ports-file", type=click.Path(dir_okay=False, path_type=Path), help="Written once all are ready (JSON)."
)
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep logs and configuration in this folder.",
)
def command(
    replicas: int,
    workers: int,
    plane: Plane,
    sync: str,
    stream_hold: str,
    fallbacks: int,
    seconds: float | None,
    ports_file: Path | None,
    logs: Path | None,
) -> None:
    """Run a whole local cluster on loopback: Envoy, NATS, Valkey, replicas, simulated engines.

    A part that dies is started again two seconds later on the same port. Ctrl-C ends all of it.
    """
    in_a_folder("--ports-file", ports_file)
    layout = Layout(
        replicas=replicas,
        workers=workers,
        plane=plane,
        sync=sync,
        stream_hold=stream_hold,
        fallbacks=fallbacks,
    )
    try:
        cluster = Cluster(layout, say=_say, logs=logs, ports_file=ports_file)
        asyncio.run(_run(cluster, seconds, ports_file))
    except LayoutError as error:
        raise click.UsageError(str(error)) from None
    except (ProcessError, OSError) as error:
        click.echo(f"picker up: {error}", err=True)
        sys.exit(1)


async def _run(cluster: Cluster, seconds: float | None, ports_file: Path | None) -> None:
    async def work() -> None:
        async with cluster:
            try:
                _describe(cluster, ports_file)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(cluster.given_up(), seconds)
            finally:
                _say("stopping")

    await interruptible(work())


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader left; everything must be stopped all the same
        click.echo(line)


def _describe(cluster: Cluster, ports_file: Path | None) -> None:
    body = f'{{"model": "{MODEL}", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}'
    lines = [
        f"gateway      {cluster.envoy_url}   (round robin, for comparison: {cluster.round_robin_url})",
        *(f"{replica.name:<12} http://{replica.admin}/status.json" for replica in cluster.replicas),
        *(f"{worker.name:<12} http://{worker.address}/metrics" for worker in cluster.workers),
        f"plane        {cluster.plane_url}",
        f"events       {cluster.nats_url}",
        f"logs         {cluster.folder}",
        "",
        "Try:",
        f"  curl -N {cluster.envoy_url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
        *([] if ports_file is None else [f"  picker check --ports-file {ports_file}"]),
        "",
        "Ctrl-C stops everything.",
    ]
    for line in lines:
        _say(line)
