"""Has Envoy Gateway's own translator say what Envoy is told for the objects that the chart renders, and keeps that.

    python tests/chart/gateway/record.py

Needs helm (`tests/tools/helm.py`) and `egctl` in `.tools/bin`; the latter is built from its Go module where it is
missing, which takes a quarter of an hour. The recording holds a digest of what went in: a test tells when it is stale.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.chart.rendering import text  # noqa: E402 - tests are found from the root only
from tests.tools.helm import BIN, MODULES  # noqa: E402

RECORDING: Final = HERE / "translated.json"
EGCTL: Final = BIN / "egctl"
MODULE: Final = next(each for each in MODULES if each.startswith("github.com/envoyproxy/gateway@"))
READ: Final = {
    "BackendTrafficPolicy", "EnvoyExtensionPolicy", "EnvoyPatchPolicy", "EnvoyProxy", "HTTPRoute", "Service",
}  # fmt: skip
"""Kinds that the translator reads; of the rest it knows nothing."""


def objects() -> list[Mapping[str, Any]]:
    """What goes in: rendered and surrounding objects."""
    return [*_rendered(), *yaml.safe_load_all((HERE / "surroundings.yaml").read_text())]


def _rendered() -> Iterator[Mapping[str, Any]]:
    for each in yaml.safe_load_all(text(HERE / "values.yaml")):
        if each and each["kind"] in READ:
            # versions of the chart change nothing of it
            each["metadata"] = {key: each["metadata"][key] for key in ("name", "namespace")}
            if each["kind"] == "Service" and "clusterIP" not in each["spec"]:
                each["spec"]["clusterIP"] = "10.96.0.10"
            yield each


def digest() -> str:
    """Of what goes in."""
    return hashlib.sha256(json.dumps(objects(), sort_keys=True).encode()).hexdigest()


def build() -> None:
    """Build the translator."""
    path, _, version = MODULE.partition("@")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "go.mod").write_text(f"module egctl\n\ngo 1.26\n\nrequire {path} {version}\n")
        tools = f'//go:build tools\n\npackage tools\n\nimport _ "{path}/cmd/egctl"\n'
        (folder / "tools.go").write_text(tools)
        # storage drivers of other programs' images, which need C libraries and are not used
        tags = "exclude_graphdriver_btrfs exclude_graphdriver_devicemapper containers_image_openpgp"
        options = ["-mod=mod", "-tags", tags, "-ldflags=-s -w", "-o", str(EGCTL)]
        subprocess.run(["go", "build", *options, f"{path}/cmd/egctl"], cwd=folder, check=True)


def translated() -> Mapping[str, Any]:
    """What Envoy is told, as its own configuration dump, and what each object's status says."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(objects(), file)
        file.flush()
        to = "xds,gateway-api"
        command = [
            str(EGCTL),
            "x",
            "translate",
            "--from",
            "gateway-api",
            "--to",
            to,
            "-o",
            "json",
            "-f",
            file.name,
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    sys.stderr.write(done.stderr)
    told: Mapping[str, Any] = json.loads(done.stdout)
    return told


def conditions(told: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Kind, condition and its status, of each object that has one."""

    def within(at: Any) -> Iterator[Mapping[str, str]]:
        if isinstance(at, dict):
            yield from at.get("conditions") or ()
        below = at.values() if isinstance(at, dict) else at if isinstance(at, list) else ()
        for each in below:
            yield from within(each)

    for name, listed in told.items():
        for each in listed if isinstance(listed, list) and name != "xds" else ():
            for condition in within(each.get("status") or {}):
                yield each["kind"], condition["type"], condition["status"]


def main() -> None:
    """Record."""
    if not EGCTL.exists():
        build()
    told = translated()
    kept = {
        "by": MODULE,
        "input": digest(),
        "conditions": sorted(set(conditions(told))),
        "xds": told["xds"],
    }
    RECORDING.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
