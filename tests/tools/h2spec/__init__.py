"""h2spec, the conformance suite of HTTP/2 servers: built once into `.tools`, from the versions in go.mod and go.sum."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.tools.golang import TOOLS, go

BINARY = TOOLS / "bin" / "h2spec"
PACKAGE = "github.com/summerwind/h2spec/cmd/h2spec"


def h2spec() -> Path:
    """The program; built at the first call, which needs the Go module proxy."""
    if not BINARY.exists():
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        made = BINARY.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [go(), "build", "-o", str(made), PACKAGE],
            cwd=Path(__file__).parent,
            env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
            check=True,
            timeout=600,
        )
        made.rename(BINARY)
    return BINARY
