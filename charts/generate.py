"""Writes what of the chart is made: settings among its values, its schema, its templates' table, dashboards, README.

    python charts/generate.py [--check]

With ``--check`` nothing is written; what differs is named, and the exit code is 1. The chart's README is made by
helm-docs out of the values, in the same run where `.tools/bin/helm-docs` stands (`make chart-tools`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from charts.dashboards import dashboards  # noqa: E402 - charts is found from the root only
from charts.settings import Setting, settings  # noqa: E402

CHART = ROOT / "charts" / "picker"
HELM_DOCS = ROOT / ".tools" / "bin" / "helm-docs"
BEGIN, END = "# settings: made by `make docs`\n", "# end of settings\n"
WIDTH = 118
SECONDS = {"pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$"}
STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
LABELS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
QUANTITIES: dict[str, Any] = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
WORDS: dict[str, dict[str, Any]] = {
    "$labels": LABELS,
    "$strings": STRINGS,
    "$objects": {"type": "array", "items": {"type": "object"}},
    "$object": {"type": "object", "additionalProperties": True},
    "$seconds": SECONDS,
    "$ports": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
    "$quantities": QUANTITIES,
    "$resources": {
        "type": "object",
        "properties": {"requests": QUANTITIES, "limits": QUANTITIES},
        "additionalProperties": False,
    },
}


class ConstraintError(Exception):
    """A constraint without a value, or a value that its default does not describe."""


# the values


def settings_values() -> str:
    """The generated block of values.yaml."""
    lines = ["settings:"]
    shown = (each for each in settings() if each.generated)
    for (part, title), group in groupby(shown, key=lambda each: (each.part, each.title)):
        lines += [f"  # {title}", f"  {part}:"]
        for each in group:
            also = f" Also read from {', '.join(each.also)}." if each.also else ""
            text = f"-- {each.text}{also} (`{each.variable}`)"
            lines += [f"    # {line}" for line in textwrap.wrap(text, WIDTH - 6, break_on_hyphens=False)]
            lines.append(f"    {each.key}: {json.dumps(each.default)}")
    return "\n".join(lines) + "\n"


def values() -> str:
    """values.yaml with its generated block made anew."""
    before, _, rest = (CHART / "values.yaml").read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{settings_values()}{END}{after}"


# the schema


def _written_out(piece: Any) -> Any:
    if isinstance(piece, str) and piece.startswith("$"):
        return WORDS[piece]
    if isinstance(piece, dict):
        return {key: _written_out(value) for key, value in piece.items()}
    return piece


class SchemaOf:
    """The schema of hand-written values: types from the defaults, the rest from constraints.yaml."""

    def __init__(self, constraints: Mapping[str, Any]) -> None:
        self._constraints = constraints
        self._used: set[str] = set()

    def of(self, value: Any, path: str = "") -> dict[str, Any]:
        """The schema of one value and of all below it."""
        given: dict[str, Any] = _written_out(self._constraints.get(path, {}))
        self._used.update({path} & set(self._constraints))
        if isinstance(value, dict) and (value or "properties" in given) and not self._free(given):
            below = {key: self.of(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
            return {"type": "object", "properties": below, "additionalProperties": False} | given
        if isinstance(value, dict | list) and not given:
            raise ConstraintError(f"{path}: an empty list or object does not say what it holds")
        return {"type": _type(value)} | given

    @staticmethod
    def _free(given: Mapping[str, Any]) -> bool:
        return bool(given.get("additionalProperties")) or "properties" in given

    def unused(self) -> set[str]:
        """Constraints of values that do not exist."""
        return set(self._constraints) - self._used


def _type(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _settings_schema() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for each in settings():
        if each.generated:
            part = parts.setdefault(
                each.part, {"type": "object", "properties": {}, "additionalProperties": False}
            )
            part["properties"][each.key] = {**each.schema, "description": f"{each.text} ({each.variable})"}
    return {"type": "object", "properties": parts, "additionalProperties": False}


def schema(all_values: str) -> str:
    """values.schema.json: no key is free that the chart does not hand on to Kubernetes as it is."""
    hand = yaml.safe_load(all_values)
    hand.pop("settings")
    maker = SchemaOf(yaml.safe_load((ROOT / "charts" / "constraints.yaml").read_text()))
    whole = maker.of(hand)
    if maker.unused():
        raise ConstraintError(f"constraints.yaml names values that do not exist: {sorted(maker.unused())}")
    whole["properties"]["settings"] = _settings_schema()
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the picker's chart",
    }
    return json.dumps(head | whole, indent=2) + "\n"


# what templates read


def _row(each: Setting) -> dict[str, Any]:
    return {
        "variable": each.variable,
        "also": list(each.also),
        "part": each.part,
        "key": each.key,
        "path": list(each.path),
        "kind": each.kind,
        "default": each.default,
        "generated": each.generated,
    }


def table() -> str:
    """files/settings.json: how a value becomes a variable."""
    rows = [json.dumps(_row(each)) for each in settings()]
    return "[\n  " + ",\n  ".join(rows) + "\n]\n"


# the README


def readme(all_values: str) -> str | None:
    """The chart's README as helm-docs writes it, or None without helm-docs."""
    if not HELM_DOCS.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name in ("Chart.yaml", "README.md.gotmpl"):
            (Path(folder) / name).write_text((CHART / name).read_text())
        (Path(folder) / "values.yaml").write_text(all_values)
        command = [str(HELM_DOCS), "--chart-search-root", folder, "--sort-values-order", "file"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603 - our own helm-docs
        text = (Path(folder) / "README.md").read_text()
    return re.sub(r"[ \t]+\n", "\n", text).rstrip() + "\n\n" + homes()


def homes() -> str:
    """The settings that have a value of their own outside ``settings``, as a section."""
    lines = ["## Settings with a value of their own", "", "| variable | value |", "| --- | --- |"]
    own = (each for each in settings() if not each.generated)
    lines += [
        f"| `{each.variable}` | {f'`{each.home}`' if each.home else 'told by the pod'} |" for each in own
    ]
    return "\n".join(lines) + "\n"


def made() -> Iterator[tuple[Path, str]]:
    """Each file and what it should hold."""
    all_values = values()
    yield CHART / "values.yaml", all_values
    yield CHART / "values.schema.json", schema(all_values)
    yield CHART / "files" / "settings.json", table()
    for name, text in dashboards().items():
        yield CHART / "dashboards" / name, text
    written = readme(all_values)
    if written is not None:
        yield CHART / "README.md", written


def main() -> int:
    """Write, or compare."""
    check = "--check" in sys.argv[1:]
    stale = []
    for path, text in made():
        if check and (not path.exists() or path.read_text() != text):
            stale.append(path.relative_to(ROOT))
        elif not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        sys.stderr.write(f"{path} is not what the settings and values say: run `make docs`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
