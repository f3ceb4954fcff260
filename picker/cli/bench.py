"""`picker bench`: what the project promises, measured, each number beside its budget."""

from __future__ import annotations

from importlib import import_module

import click

BENCHES: dict[str, str] = {
    "index": "the prefix index: hash, match, apply, clear, growth, memory, and an oracle",
    "decide": "what a decision costs a replica, beside other servers, KV events, held streams, a gateway",
    "quality": "published traces through simulated engines in virtual time, against other policies",
    "plane": "the state plane's operations beside the bare server, heartbeats, reaping",
    "staleness": "how late a view is, between real processes, beside a bare hop",
    "race": "what choosing at the same time costs in balance, by mode and number of replicas",
}


class Benches(click.Group):
    """The benches by name, each loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of the table."""
        return list(BENCHES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The bench of that name, or None."""
        if cmd_name not in BENCHES:
            return None
        command: click.Command = import_module(f"picker.cli.benches.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the benches from the table, without importing any."""
        with formatter.section("Benches"):
            formatter.write_dl(list(BENCHES.items()))


@click.group("bench", cls=Benches)
def command() -> None:
    """Measure what the project promises: exit status 0 only if every budget was kept."""
