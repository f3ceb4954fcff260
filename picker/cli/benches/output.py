"""How a bench speaks: progress on stderr, then tables, or JSON and nothing else, on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from picker.bench.budget import Result


def progress(text: str) -> None:
    """Say what is being measured; on stderr, so that stdout holds the result alone."""
    click.echo(text, err=True)


def table(title: str, columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table of these rows; ``columns`` gives each key's heading. Numbers stand on the right."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, heading in enumerate(columns.values()):
        made.add_column(heading, justify="left" if number == 0 else "right")
    for row in rows:
        made.add_row(*(_cell(row.get(key)) for key in columns))
    return made


def finish(result: Result, tables: Callable[[Result], Sequence[Table]], *, as_json: bool) -> None:
    """Print the result and end: status 1 if a budget was not kept."""
    if as_json:
        click.echo(json.dumps(result.as_json(), indent=2, allow_nan=False))
    else:
        # wide enough for every table where the output is a file: a wrapped number cannot be read
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        for each in (*tables(result), _conditions(result), _budgets(result)):
            console.print(each)
    sys.exit(0 if result.passed else 1)


def _conditions(result: Result) -> Table:
    rows = [{"what": key.replace("_", " "), "value": value} for key, value in result.conditions.items()]
    return table("Measured on", {"what": "", "value": ""}, rows)


def _budgets(result: Result) -> Table:
    rows = [
        {
            "name": budget.name,
            "measured": budget.measured,
            "budget": budget.promise,
            "kept": "kept" if budget.passed else "NOT KEPT",
        }
        for budget in result.budgets
    ]
    return table("Budgets", {"name": "what", "measured": "measured", "budget": "budget", "kept": ""}, rows)


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.10g}"
    return str(value)
