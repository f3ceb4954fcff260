"""Tables of a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def markdown_table(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """``columns``: key of a row -> heading. A value that is missing stays empty."""
    lines = [_line(columns.values()), _line("---" if n == 0 else "---:" for n, _ in enumerate(columns))]
    lines += [_line(_cell(row.get(key)) for key in columns) for row in rows]
    return "\n".join(lines) + "\n"


def measured_on(numbers: Mapping[str, Any]) -> str:
    """What was measured on, and whether the budgets were kept."""
    conditions = "; ".join(
        f"{key.replace('_', ' ')}: {value}" for key, value in numbers["conditions"].items()
    )
    budgets = markdown_table(
        {"name": "budget", "measured": "measured", "budget": "promised", "kept": ""},
        [one | {"kept": "kept" if one["passed"] else "**not kept**"} for one in numbers["budgets"]],
    )
    return f"{budgets}\nMeasured on: {conditions}.\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value).replace("|", "\\|")
