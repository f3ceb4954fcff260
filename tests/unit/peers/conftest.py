"""A secret as replicas share it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.peers.replicas import SECRET


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    return file
