"""What every unit test keeps: the way log lines go is nobody's but the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Loggers of modules remember a configuration for ever once it says so: no test may leave one behind."""
    before = structlog.get_config()
    yield
    assert structlog.get_config() == before, "this test leaves its configuration of logs behind"
