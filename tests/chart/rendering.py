"""Helm, and what it rendered, by kind and name."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from picker.settings import Settings, load
from tests.tools.helm import BIN, ROOT

CHART: Final = ROOT / "charts" / "picker"
RELEASE: Final = "llama-8b"
NAMESPACE: Final = "llama"
SCENARIOS: Final[Mapping[str, Path]] = {
    path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))
}

Object = Mapping[str, Any]


class HelmError(Exception):
    """What helm said."""


@dataclass(frozen=True)
class Objects:
    """Rendered objects."""

    all: tuple[Object, ...]

    def of(self, kind: str) -> tuple[Object, ...]:
        return tuple(each for each in self.all if each["kind"] == kind)

    def names(self, kind: str) -> set[str]:
        return {each["metadata"]["name"] for each in self.of(kind)}

    def one(self, kind: str, name: str | None = None) -> Object:
        found = [each for each in self.of(kind) if name in (None, each["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} of kind {kind} and name {name}: {self.names(kind)}"
        return found[0]

    @property
    def pod(self) -> Object:
        """The replicas' PodTemplateSpec."""
        return self.one("Deployment", self.name)["spec"]["template"]  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """What the chart's objects are called."""
        owners = [
            each["metadata"]["name"]
            for each in self.of("Deployment")
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == "picker"
        ]
        assert len(owners) == 1
        return str(owners[0])

    @property
    def picker(self) -> Object:
        """The picker's container."""
        return next(each for each in self.pod["spec"]["containers"] if each["name"] == "picker")

    @property
    def environment(self) -> dict[str, Any]:
        """Its variables: a value, or where it comes from."""
        listed = self.picker["env"]
        named = {each["name"]: each.get("value", each.get("valueFrom")) for each in listed}
        assert len(named) == len(listed), "a variable is said twice"
        return named


def helm(*arguments: str, expected: int = 0) -> str:
    """Run helm; its output, or what it refused with."""
    done = subprocess.run(
        [str(BIN / "helm"), *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    if (done.returncode != 0) != bool(expected):
        raise HelmError(
            f"helm {' '.join(arguments[:2])} ended with {done.returncode}: {done.stderr}{done.stdout[-800:]}"
        )
    return done.stderr if expected else done.stdout


def text(values: Path | None, *more: str, kubernetes: str = "1.35.0") -> str:
    """The rendered text."""
    files = ("--values", str(values)) if values else ()
    return helm(
        "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", kubernetes, *files, *more
    )


def _parsed(rendered: str) -> Iterator[Object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    yield from (each for each in yaml.load_all(rendered, Loader=loader) if each)


@cache
def render(scenario: str) -> Objects:
    """What a values file of charts/picker/ci renders."""
    return Objects(tuple(_parsed(text(SCENARIOS[scenario]))))


def rendered(values: Mapping[str, Any], *more: str) -> Objects:
    """What these values render."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values), file)
        file.flush()
        return Objects(tuple(_parsed(text(Path(file.name), *more))))


def refused(values: Mapping[str, Any]) -> str:
    """Why these values are refused."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values), file)
        file.flush()
        return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "-f", file.name, expected=1)


def notes(values: Path, *more: str) -> str:
    """What helm tells after an installation."""
    said = helm(
        "install",
        RELEASE,
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--dry-run=client",
        "--values",
        str(values),
        *more,
    )
    return said.partition("NOTES:")[2]


def settings_from(environment: Mapping[str, str]) -> Settings:
    """The settings as the picker reads them from nothing but these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("PICKER_", "DYN_")):
                patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        return load()
