"""`picker sim`: the simulated parts of a local world."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import click

from picker.logs import configure
from picker.sim.engine.dialects import DIALECTS
from picker.sim.engine.options import Options
from picker.sim.engine.scheduler import Pace
from picker.sim.engine.server import Server, serve
from picker.sim.model import DIRECTORY, MODEL


@click.group("sim", short_help="Simulated parts of a local world.")
def command() -> None:
    """Simulated parts of a local world."""


@command.command("engine", short_help="A simulated vLLM.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="HTTP port; 0: any free one."
)
@click.option("--name", default="engine", show_default=True, help="Told in the header x-sim-worker.")
@click.option("--model", default=MODEL, show_default=True, help="Name of the served model.")
@click.option(
    "--model-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=DIRECTORY,
    help="Directory with tokenizer.json and chat template; default: the demo model's.",
)
@click.option("--lora", "loras", multiple=True, help="Name of an adapter; may be given several times.")
@click.option(
    "--block-size", type=click.IntRange(1, 1024), default=16, show_default=True, help="Tokens per block."
)
@click.option(
    "--blocks", type=click.IntRange(1), default=4096, show_default=True, help="Blocks of the KV cache."
)
@click.option(
    "--max-model-len", type=click.IntRange(2), default=32_768, show_default=True, help="Longest context."
)
@click.option("--max-waiting", type=click.IntRange(1), default=4096, show_default=True, help="Longest queue.")
@click.option(
    "--max-seqs", type=click.IntRange(1), default=64, show_default=True, help="Most sequences in a batch."
)
@click.option(
    "--max-batched-tokens", type=click.IntRange(1), default=2048, show_default=True, help="Most in a step."
)
@click.option("--prefill-us-per-token", type=click.FloatRange(0), default=200.0, show_default=True)
@click.option(
    "--decode-ms", type=click.FloatRange(0), default=10.0, show_default=True, help="Length of a step."
)
@click.option(
    "--time-scale", type=click.FloatRange(0.001), default=1.0, show_default=True, help="2: twice as fast."
)
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="Data-parallel rank.")
@click.option("--metric-names", type=click.Choice(["old", "new", "both"]), default="new", show_default=True)
@click.option("--abort-on-disconnect/--no-abort-on-disconnect", default=True, show_default=True)
@click.option("--abort-delay", type=click.FloatRange(0), default=0.0, show_default=True, help="Seconds.")
@click.option("--dialect", type=click.Choice(list(DIALECTS)), default="vllm-map-0.26", show_default=True)
@click.option(
    "--kv-events", default="", help="Publish KV events on tcp://127.0.0.1:PORT (0: any) or ipc://PATH."
)
@click.option("--kv-replay", default="", help="Answer replay requests there; default: not at all.")
@click.option("--kv-topic", default="kv-events", show_default=True)
@click.option(
    "--kv-keep-batches", type=click.IntRange(0), default=10_000, show_default=True, help="Replay buffer."
)
@click.option("--kv-replay-end/--no-kv-replay-end", default=True, help="Send the end marker of a replay.")
@click.option("--kv-raw-hashes/--kv-int-hashes", default=False, help="Hashes as bytes, or as 64-bit numbers.")
@click.option(
    "--clear-waits/--clear-at-once", default=False, help="Announce a dropped cache with the next step only."
)
def engine(**told: Any) -> None:
    """
    A simulated vLLM: OpenAI API, metrics, KV events, a real prefix cache, prefill and decode times.

    Prints one line of JSON when it listens; ends cleanly on SIGTERM.
    """
    pace = Pace(
        max_sequences=told.pop("max_seqs"),
        max_batched_tokens=told.pop("max_batched_tokens"),
        prefill_seconds_per_token=told.pop("prefill_us_per_token") / 1e6,
        decode_seconds=told.pop("decode_ms") / 1e3,
    )
    configure("info", "text")
    try:
        asyncio.run(serve(Options(pace=pace, **told), _ready))
    except OSError as fault:
        raise click.ClickException(f"the engine cannot listen: {fault}") from fault
    except ValueError as fault:
        raise click.ClickException(str(fault)) from fault


def _ready(server: Server) -> None:
    publisher = server.engine.publisher
    facts = {
        "ready": True,
        "name": server.options.name,
        "model": server.options.model,
        "address": f"{server.options.host}:{server.port}",
        "url": server.url,
        "kv_events": publisher.live if publisher else "",
        "kv_replay": publisher.replay if publisher else "",
        "pid": os.getpid(),
    }
    click.echo(json.dumps(facts))
