"""`picker serve`: one replica."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click

from picker import heap, logs
from picker.settings import SettingsError, load


@click.command()
@click.option("--pool-name", help="Name of the InferencePool.  [PICKER_POOL_NAME]")
@click.option("--pool-namespace", help="Its namespace.  [PICKER_POOL_NAMESPACE]")
@click.option("--grpc-port", type=int, help="Port of ext_proc.  [PICKER_GRPC_PORT]")
@click.option("--grpc-health-port", type=int, help="Port of gRPC health.  [PICKER_GRPC_HEALTH_PORT]")
@click.option("--metrics-port", type=int, help="Port of metrics and status.  [PICKER_METRICS_PORT]")
@click.option(
    "--kv-cache-usage-percentage-metric",
    help="The engine's KV-cache usage metric.  [PICKER_KV_CACHE_USAGE_PERCENTAGE_METRIC]",
)
@click.pass_context
def command(context: click.Context, /, **flags: Any) -> None:
    """Run one replica of the picker until SIGTERM.

    Everything else is set by PICKER_* environment variables: `picker settings` lists them.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load(**given)
        heap.return_large_blocks()
        logs.configure(settings.life.log_level, settings.life.log_format)
        from picker.app import run

        status = asyncio.run(run(settings))
    except SettingsError as error:
        for line in error.lines:
            click.echo(line, err=True)
        context.exit(2)
    sys.exit(status)
