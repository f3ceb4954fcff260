"""Generates the Python modules of our messages from the .proto files beside this one.

Run ``python protos/generate.py`` with the development dependencies installed; ``--check`` writes nothing and exits 1
where a committed module differs from what would be written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "picker/serving/wire"


def generate(target: Path) -> None:
    """Write the modules below ``target``, at the package's path."""
    sources = sorted(path.name for path in (ROOT / "protos").glob("*.proto"))
    arguments = [
        "protoc",
        f"-I{PACKAGE}={ROOT / 'protos'}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--plugin=protoc-gen-mypy={Path(sys.executable).parent / 'protoc-gen-mypy'}",
        f"--python_out={target}",
        f"--mypy_out=quiet:{target}",
        *(f"{PACKAGE}/{name}" for name in sources),
    ]
    status = protoc.main(arguments)
    if status != 0:
        sys.exit(f"protoc ended with {status}: see its message above.")


def generated(root: Path) -> dict[str, str]:
    """The generated modules below ``root``: name to text."""
    return {path.name: path.read_text() for path in sorted((root / PACKAGE).glob("*_pb2.py*"))}


def main() -> None:
    """Write the modules, or compare them with what is committed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a module differs")
    check: bool = parser.parse_args().check
    if not check:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh, committed = generated(Path(scratch)), generated(ROOT)
    differing = sorted(
        name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name)
    )
    if differing:
        sys.exit(
            f"Not as generated: {', '.join(differing)}. Run `python protos/generate.py` and commit the result."
        )


if __name__ == "__main__":
    main()
