"""
The command line: reads flags, starts the parts, prints for people.

One module a command; each is imported only when it is called, so that `picker serve` never loads the simulator.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version

import click

COMMANDS: dict[str, str] = {
    "serve": "run one replica of the picker",
    "bridge": "publish one engine's KV events on NATS",
    "up": "run a whole local cluster: Envoy, NATS, Valkey, replicas, simulated engines",
    "demo": "replay a real trace through a local cluster and say what the picker gained",
    "sim": "parts of the local world, one at a time",
    "check": "probe a deployment end to end and say of each promise whether it is kept",
    "bench": "measure what the project promises, each number beside its budget",
    "chaos": "break a cluster on purpose and judge what it did: the release gate",
    "settings": "list every setting with its default",
}


class Commands(click.Group):
    """The commands by name, each loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"picker.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": None}
)
@click.version_option(version("replicated-endpoint-picker"), prog_name="picker")
def main() -> None:
    """Pick model servers for LLM requests: several equal replicas that decide like one."""
