"""Runs the stages of `make test`, each with a printed budget; exits 0 only if every stage passed.

`python tests/run.py` runs all of them, `python tests/run.py lint unit` the named ones. Every stage runs even when an
earlier one failed, so that one run tells everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
HARD_LIMIT = 4
"""A stage that takes this many times its budget is ended: it hangs."""


@dataclass(frozen=True)
class Stage:
    """Commands that belong together, and how long they may take."""

    name: str
    budget_seconds: int
    commands: tuple[tuple[str, ...], ...]


def pytest(*arguments: str) -> tuple[str, ...]:
    return (str(BIN / "pytest"), "-q", *arguments)


STAGES: tuple[Stage, ...] = (
    Stage(
        "generated",
        30,
        (
            (str(BIN / "python"), "protos/generate.py", "--check"),
            (str(BIN / "python"), "docs/generate.py", "--check"),
            (str(BIN / "python"), "charts/generate.py", "--check"),
            (str(BIN / "python"), "image/lock.py", "--check"),
        ),
    ),
    Stage(
        "lint",
        90,
        (
            (str(BIN / "ruff"), "check", "."),
            (str(BIN / "ruff"), "format", "--check", "."),
            (str(BIN / "mypy"),),
            (str(BIN / "lint-imports"),),
        ),
    ),
    Stage("unit", 210, (pytest("-n", "2", "tests/unit"),)),
    Stage("chart", 150, (pytest("-n", "2", "tests/chart"),)),
    Stage("contract", 300, (pytest("-n", "2", "tests/contract"),)),
    Stage("serving", 420, (pytest("tests/serving"),)),
    Stage("e2e", 960, (pytest("tests/e2e"),)),
    Stage("kubernetes", 720, (pytest("tests/kubernetes"),)),
    Stage(
        "chaos",
        330,
        (
            ("rm", "-rf", "out/chaos"),
            (str(BIN / "picker"), "chaos", "run", "--suite", "smoke", "--report", "out/chaos"),
        ),
    ),
)


def run(stage: Stage) -> bool:
    """Run the stage's commands in order; say how long they took against the budget."""
    print(f"\n=== {stage.name} (budget {stage.budget_seconds} s)", flush=True)
    begun = time.monotonic()
    passed = True
    for command in stage.commands:
        print(f"--- {' '.join(command).replace(str(ROOT) + '/', '')}", flush=True)
        left = stage.budget_seconds * HARD_LIMIT - (time.monotonic() - begun)
        try:
            passed &= subprocess.run(command, cwd=ROOT, timeout=max(left, 1), check=False).returncode == 0
        except subprocess.TimeoutExpired:
            print(f"ended: {HARD_LIMIT} times the budget has passed", flush=True)
            passed = False
    took = time.monotonic() - begun
    over = "" if took <= stage.budget_seconds else "  OVER BUDGET"
    print(
        f"=== {stage.name}: {'passed' if passed else 'FAILED'} in {took:.0f} s of {stage.budget_seconds}{over}",
        flush=True,
    )
    return passed


def main(names: Sequence[str]) -> int:
    """Run the named stages, or all."""
    unknown = set(names) - {stage.name for stage in STAGES}
    if unknown:
        print(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in STAGES)}")
        return 2
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    chosen = [stage for stage in STAGES if not names or stage.name in names]
    failed = [stage.name for stage in chosen if not run(stage)]
    print(
        f"\n{len(chosen) - len(failed)} passed, {len(failed)} failed"
        + (f": {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
