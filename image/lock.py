"""Writes image/requirements.lock: of the project's lock what the picker needs to run, no server, no tool of tests.

python image/lock.py [--check]

What is needed is told by the installed packages themselves, starting from the project's own dependencies.
"""  # noqa: INP001 - a program, not a module

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

IMAGE = Path(__file__).resolve().parent
ROOT = IMAGE.parent
LOCK = IMAGE / "requirements.lock"
HEADER = "# Made by `make docs` out of requirements.lock: what the picker needs to run.\n"
ON = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython",
      "platform_python_implementation": "CPython"}  # fmt: skip
PYTHON = "3.11"


def normal(name: str) -> str:
    """A package's name as the registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _wanted(each: Requirement, extras: Iterable[str]) -> bool:
    if each.marker is None:
        return True
    python = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.99"}
    return any(each.marker.evaluate({**ON, **python, "extra": extra}) for extra in ("", *extras))


def closure(wanted: Iterable[str]) -> set[str]:
    """These requirements and all that they need on Linux."""
    found: set[tuple[str, str]] = set()
    left = [(normal(each.name), extra) for each in map(Requirement, wanted) for extra in ("", *each.extras)]
    while left:
        name, extra = left.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            below = map(Requirement, requires(name) or ())
        except PackageNotFoundError:
            raise SystemExit(f"{name} is needed and not installed here: `make setup`") from None
        left += [
            (normal(each.name), more)
            for each in below
            if _wanted(each, (extra,) if extra else ())
            for more in ("", *each.extras)
        ]
    return {name for name, _ in found}


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each package of a lock: its name, and its lines without remarks."""
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        begin = re.match(r"([A-Za-z0-9._-]+)(\[[^\]]*\])?==", block)
        if begin:
            lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
            yield normal(begin[1]), "\n".join(lines)


def made() -> str:
    """What the lock should hold."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = closure(project["dependencies"])
    kept = [
        (name, lines) for name, lines in blocks((ROOT / "requirements.lock").read_text()) if name in needed
    ]
    missing = needed - {name for name, _ in kept}
    if missing:
        raise SystemExit(f"not in requirements.lock: {', '.join(sorted(missing))}")
    return HEADER + "\n".join(lines for _, lines in kept) + "\n"


def main() -> int:
    """Write, or compare."""
    text = made()
    if "--check" in sys.argv[1:]:
        if not LOCK.exists() or LOCK.read_text() != text:
            sys.stderr.write("image/requirements.lock is not what requirements.lock says: run `make docs`\n")
            return 1
        return 0
    LOCK.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
