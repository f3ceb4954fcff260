"""`picker bridge`: one engine's KV events on NATS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

import click
from aiohttp import web

from picker import logs
from picker.events.bridge.bridge import Bridge
from picker.events.bridge.page import application, health
from picker.settings import Settings, SettingsError, load
from picker.webport import Counts, open_runner


@click.command("bridge", short_help="Publish one engine's KV events on NATS.")
@click.option(
    "--worker",
    "bridge_worker",
    help="host:port of the engine as the gateway reaches it.  [PICKER_BRIDGE_WORKER]",
)
@click.option("--events", "bridge_events", help="ZMQ endpoint of its KV events.  [PICKER_BRIDGE_EVENTS]")
@click.option("--replay", "bridge_replay", help="ZMQ endpoint of its replay.  [PICKER_BRIDGE_REPLAY]")
@click.option("--rank", "bridge_rank", type=int, help="Its data-parallel rank.  [PICKER_BRIDGE_RANK]")
@click.option("--nats-url", help="NATS server.  [PICKER_NATS_URL]")
@click.option("--pool-name", help="Name of the InferencePool.  [PICKER_POOL_NAME]")
@click.option("--pool-namespace", help="Its namespace.  [PICKER_POOL_NAMESPACE]")
@click.option("--block-size", type=int, help="Tokens per block of the pool.  [PICKER_BLOCK_SIZE]")
@click.option(
    "--admin-port",
    "bridge_admin_port",
    type=int,
    help="Port of health and metrics; 0: none.  [PICKER_BRIDGE_ADMIN_PORT]",
)
@click.pass_context
def command(context: click.Context, /, **flags: Any) -> None:
    """
    Read one engine's KV events and publish them on NATS until SIGTERM.

    Prints one line of JSON when it is ready; NATS or the engine being away then is said in it, and mended later.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = load(**given)
        logs.configure(settings.life.log_level, settings.life.log_format)
        bridge = Bridge(
            settings.events, settings.bridge, pool=settings.pool.pool, block_size=settings.price.block_size
        )
    except SettingsError as error:
        for line in error.lines:
            click.echo(line, err=True)
        context.exit(2)
    except ValueError as error:
        click.echo(str(error), err=True)
        context.exit(2)
    sys.exit(asyncio.run(_run(bridge, settings)))


async def _run(bridge: Bridge, settings: Settings) -> int:
    """Bridge until a signal; the exit status."""
    work = asyncio.create_task(_serve(bridge, settings))
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        return 0
    except ExceptionGroup as group:
        for error in group.exceptions:
            click.echo(f"picker bridge: {error}", err=True)
        return 1
    except OSError as error:
        click.echo(f"PICKER_BRIDGE_ADMIN_PORT: cannot listen: {error}", err=True)
        return 2
    return 1


async def _serve(bridge: Bridge, settings: Settings) -> None:
    port = settings.bridge.bridge_admin_port
    async with contextlib.AsyncExitStack() as stack:
        if port:
            connections = Counts()
            runner = open_runner(application(bridge, connections), keepalive=30, counts=connections)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, settings.admin.admin_host, port).start()
        await bridge.run(lambda: _ready(bridge, settings))


def _ready(bridge: Bridge, settings: Settings) -> None:
    facts = {"ready": True, "pid": os.getpid(), "worker": settings.bridge.bridge_worker}
    with contextlib.suppress(BrokenPipeError):
        click.echo(json.dumps(facts | {"state": health(bridge)}))
