"""A NATS server for each case that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract.natsserver import NatsHarness, Server

FOLDER = Path(__file__).parent


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[Server]:
    """Empty, with JetStream."""
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["memory", "file"])
async def nats_harness(request: pytest.FixtureRequest, nats_server: Server) -> AsyncIterator[NatsHarness]:
    """Planes on it, with either storage."""
    harness = NatsHarness(nats_server, request.param)
    yield harness
    await harness.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a connection that a killed server left behind be collected without blame.

    The garbage collector meets it during some later test, which then would fail for what another one did on purpose.
    """
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
