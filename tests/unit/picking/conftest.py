"""Fixtures of the picking tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.picking.world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()
