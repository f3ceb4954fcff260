"""One cluster for all tests here, and in it the chart's trial."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.asking import Asking, asking
from tests.kubernetes.cluster import running, trial
from tests.kubernetes.load import DECODE_SECONDS

SECONDS = 300
"""The first test waits for the cluster."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts pods takes longer than other tests may."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.Running]:
    """A cluster; this thread is in its network, so pods are reached at their addresses."""
    with running.cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="session")
def installed(cluster: running.Running) -> trial.Trial:
    """Three replicas, the bundled Valkey and NATS, four engines, a gateway that resolves names.

    For all tests: whoever scales or upgrades it brings it back.
    """
    made = trial.Trial.of(cluster, options=(f"--decode-ms={1000 * DECODE_SECONDS:g}",))
    made.start()
    return made


@pytest.fixture(scope="session")
def gateway(installed: trial.Trial) -> str:
    """URL of the trial's gateway."""
    return installed.gateway.url()


@pytest.fixture
async def ask() -> AsyncIterator[Asking]:
    """A client."""
    async with asking() as made:
        yield made
