"""Builds the control plane of `tests/e2e/controlplane` into `.tools/controlplane`; go.mod and go.sum name the versions.

    python -m tests.tools.controlplane

Some 2,500 packages: about a quarter of an hour on two free cores the first time, seconds once they are in Go's cache.
What is there and of this version is left alone. Exits 1 with one line that says what is missing.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from tests.tools.golang import TOOLS, go

SOURCE = Path(__file__).resolve().parents[1] / "e2e" / "controlplane"
FOLDER = TOOLS / "controlplane"
BINARY = FOLDER / "controlplane"
STAMP = FOLDER / ".version"
LIMIT_SECONDS = 2700
_VERSION = "k8s.io/component-base/version"


def _flags(version: str) -> list[str]:
    """The version that the parts call themselves; the names of functions stay, for stack traces need them."""
    major, minor = version.removeprefix("v").split(".")[:2]
    said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return ["-ldflags", " ".join(["-s", "-w", *(f"-X {_VERSION}.{name}={said[name]}" for name in said)])]


def _wanted() -> str:
    names = ("main.go", "go.mod", "go.sum")
    parts = [(SOURCE / name).read_bytes() for name in names] + [Path(__file__).read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def build() -> None:
    """Build it."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert found, "go.mod names no version of Kubernetes"
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = BINARY.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [go(), "build", "-trimpath", "-buildvcs=false", *_flags(found[1]), "-o", str(made), "."],
        cwd=SOURCE,
        env={**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
        check=True,
        timeout=LIMIT_SECONDS,
    )
    made.replace(BINARY)


def main() -> int:
    """Build it where it is missing or of another version; say how long that took."""
    wanted = _wanted()
    if BINARY.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        return 0
    begun = time.monotonic()
    sys.stderr.write("building the control plane: about a quarter of an hour the first time\n")
    try:
        build()
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"control plane: {error}\n")
        return 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    sys.stderr.write(
        f"control plane: built in {time.monotonic() - begun:.0f} s, {cpu:.0f} s of processor time\n"
    )
    STAMP.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
