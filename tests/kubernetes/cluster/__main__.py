"""A cluster by hand.

python -m tests.kubernetes.cluster up --folder /tmp/cluster            until Ctrl-C or `down`
python -m tests.kubernetes.cluster exec --folder /tmp/cluster -- kubectl get pods -A
python -m tests.kubernetes.cluster install --folder /tmp/cluster       the chart, engines, a gateway
python -m tests.kubernetes.cluster down --folder /tmp/cluster
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from picker.sim.processes import interruptible
from tests.kubernetes.cluster import daemon, network, running, trial

FOLDER = click.option(
    "--folder", type=click.Path(path_type=Path), default=Path("/tmp/cluster"), show_default=True
)


@click.group()
def main() -> None:
    """A Kubernetes cluster on this machine, with the real control plane."""


def say(text: str) -> None:
    """One line on the log."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@main.command()
@FOLDER
def run(folder: Path) -> None:
    """Run a cluster in this process until SIGTERM."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(_run(folder.resolve()))
    except (network.NetworkError, daemon.DefinitionsError) as error:
        raise click.ClickException(str(error)) from error


async def _run(folder: Path) -> None:
    await interruptible(daemon.run(folder, say))


@main.command()
@FOLDER
def up(folder: Path) -> None:
    """Start a cluster and leave it running."""
    cluster = running.start(folder.resolve())
    click.echo(f"process {cluster.pid}; inside its network (`exec`): KUBECONFIG={cluster.kubeconfig}")


@main.command()
@FOLDER
@click.option("--namespace", default=trial.NAMESPACE, show_default=True)
@click.option("--replicas", default=3, show_default=True)
@click.option("--engines", default=4, show_default=True)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def install(folder: Path, namespace: str, replicas: int, engines: int, options: tuple[str, ...]) -> None:
    """Install the chart with the bundled servers, engines (OPTIONS are theirs) and a gateway."""
    cluster = running.Running(folder.resolve())
    cluster.join()
    made = trial.Trial.of(cluster, namespace=namespace, options=options)
    url = made.start(replicas=replicas, engines=engines)
    click.echo(
        f"release {made.release.name} in namespace {namespace}; gateway {url}; admin token {trial.ADMIN_TOKEN}"
    )


@main.command()
@FOLDER
def down(folder: Path) -> None:
    """End it."""
    running.end(running.Running(folder.resolve()).pid)


@main.command(name="exec", context_settings={"ignore_unknown_options": True})
@FOLDER
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(folder: Path, command: tuple[str, ...]) -> None:
    """Run a command in the cluster's network, with kubectl and helm on PATH and meaning this cluster."""
    cluster = running.Running(folder.resolve())
    cluster.join()
    os.execvpe(command[0], list(command), cluster.environment)


if __name__ == "__main__":
    main()
