"""The table of settings, made from the models: for `picker settings`, docs/settings.md and the README."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from picker.settings import PARTS, names_of

_SENTENCE = re.compile(r".*?[.](?=\s+[A-Z0-9`]|$)")
"""A text up to the end of its first sentence."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as a reader sees it."""

    part: str
    name: str
    aliases: tuple[str, ...]
    default: str
    text: str


def _shown(default: Any) -> str:
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if default is None or default in ("", ()):
        return ""
    return ",".join(default) if isinstance(default, tuple) else str(default)


def rows() -> Iterator[Row]:
    """Every setting, in the order of the models."""
    for part in PARTS:
        for field, info in part.model_fields.items():
            first, *others = names_of(part, field, info)
            text = " ".join((info.description or "").split())
            yield Row(part.title, first, tuple(others), _shown(info.default), text)


def markdown() -> str:
    """The table as Markdown, a section per part."""
    lines: list[str] = []
    part = ""
    for row in rows():
        if row.part != part:
            part = row.part
            lines += ["", f"### {part}", "", "| variable | default | meaning |", "| --- | --- | --- |"]
        also = f" Also read from {', '.join(f'`{name}`' for name in row.aliases)}." if row.aliases else ""
        default = f"`{row.default}`" if row.default else ""
        lines.append(f"| `{row.name}` | {default} | {row.text.replace('|', '&#124;')}{also} |")
    return "\n".join(lines[1:]) + "\n"


def short_markdown() -> str:
    """All settings in one table, each with the first sentence of its text: for the README."""
    lines = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for row in rows():
        default = f"`{row.default}`" if row.default else ""
        first = _SENTENCE.match(row.text)
        text = (first[0] if first else row.text).replace("|", "&#124;")
        lines.append(f"| `{row.name}` | {default} | {text} |")
    return "\n".join(lines) + "\n"
