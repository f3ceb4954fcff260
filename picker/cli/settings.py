"""`picker settings`: every setting, from the models themselves."""

from __future__ import annotations

import click

from picker.settings.table import markdown, rows


@click.command()
@click.option("--markdown", "as_markdown", is_flag=True, help="As the table that docs/settings.md holds.")
def command(as_markdown: bool) -> None:
    """List every setting with its default."""
    if as_markdown:
        click.echo(markdown())
        return
    for row in rows():
        click.echo(f"{row.name}={row.default}")
        click.echo(click.wrap_text(row.text, width=100, initial_indent="    ", subsequent_indent="    "))
