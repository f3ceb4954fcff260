"""Has Envoy Gateway's own translator say what Envoy is told for the objects that the chart renders, and keeps that.

    python tests/chart/gateway/record.py

Needs helm (`tests/tools/helm.py`) and `egctl` in `.tools/bin`; the latter is built from its Go module where it is missing,
which takes a quarter of an hour. The recording holds the digest of what went in: a test tells when it is out of date.
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
        command = ["go", "build", "-mod=mod", "-ldflags=-s -w", "-o", str(EGCTL), f"{path}/cmd/egctl"]
        subprocess.run(command, cwd=folder, check=True)


def translated() -> Mapping[str, Any]:
    """What Envoy is told, as its own configuration dump."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(objects(), file)
        file.flush()
        command = [str(EGCTL), "x", "translate", "--from", "gateway-api", "--to", "xds", "-o", "json", "-f", file.name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    sys.stderr.write(done.stderr)
    told: Mapping[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    """Record."""
    if not EGCTL.exists():
        build()
    kept = {"by": MODULE, "input": digest(), "xds": translated()["xds"]}
    RECORDING.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
