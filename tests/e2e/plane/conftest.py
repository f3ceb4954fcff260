"""One cluster for each plane: Envoy, NATS, Valkey, three replicas, three engines that decode slowly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from picker.sim.cluster import Cluster, Layout
from tests.e2e.plane.gateway import DECODE_SECONDS, Gateway
from tests.e2e.plane.pool import Pool

ENGINES = ("--decode-ms", f"{1000 * DECODE_SECONDS:g}")


@pytest_asyncio.fixture(scope="package", loop_scope="session", params=["redis", "nats"])
async def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    """Started once for each plane."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    layout = Layout(replicas=3, workers=3, plane=request.param, engine_options=ENGINES)
    async with Cluster(layout, logs=folder) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def pool(cluster: Cluster) -> AsyncIterator[Pool]:
    """The pool, whole and quiet; it is left quiet too, or the test fails."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
        pool = Pool(cluster, http, cluster.replicas)
        await pool.make_whole()
        yield pool
        await pool.make_whole()


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(pool: Pool) -> AsyncIterator[Gateway]:
    """A gateway of one's own."""
    async with Gateway() as gateway:
        yield gateway
