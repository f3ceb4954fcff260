"""The HTML page of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from chaos.report.charts import charts
from chaos.result import Result

TEMPLATE = Path(__file__).with_name("page.html")


def page(told: Mapping[str, Any], results: Sequence[Result]) -> str:
    """The page: ``told`` is what `verdict.json` says; the stories of ``results`` are drawn."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    drawn = ["" if each.story is None else charts(each.story) for each in results]
    text: str = environment.from_string(TEMPLATE.read_text()).render(
        told=told, rows=list(zip(told["scenarios"], drawn, strict=True)), counts=_counts(told)
    )
    return text


def _counts(told: Mapping[str, Any]) -> Mapping[str, int]:
    found = {"pass": 0, "fail": 0, "unknown": 0}
    for each in told["scenarios"]:
        found[each["verdict"]] += 1
    return found
