"""Packages that offer criteria, installed into a folder of the test's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package: its code, and what its entry points in the group `picker.criteria` name."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def put(module: str, code: str, **names: str) -> None:
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        points = "\n".join(f"{name} = {value}" for name, value in names.items())
        (info / "entry_points.txt").write_text(f"[picker.criteria]\n{points}\n")
        made.append(module)
        importlib.invalidate_caches()

    yield put
    for module in made:
        sys.modules.pop(module, None)
