"""Kinds that the server does not know or does not let us read: done without, said, and taken up when they appear."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from discovery.kubernetes.api import Api
from discovery.kubernetes.imported import ImportedWorkers
from discovery.kubernetes.mirror import Pace
from discovery.kubernetes.objectives import read_objective
from discovery.kubernetes.objects import Objects
from discovery.kubernetes.workers import PoolWorkers
from tests.unit.discovery.kubernetes.conftest import ApiServer
from tests.unit.discovery.kubernetes.test_watching import (
    IMPORTS,
    OBJECTIVES,
    PODS,
    POOLS,
    following,
    pod,
    pool,
    running,
)

Until = Callable[[Callable[[], bool]], Awaitable[None]]
MOVED = "/apis/llm-d.ai/v1alpha2/namespaces/llama/inferenceobjectives"


def importing(server: ApiServer, file: Path, pace: Pace, *, way: bool = True) -> ImportedWorkers:
    def opened(context: str) -> PoolWorkers:
        return PoolWorkers(Api(file, context=context), name="p", namespace="llama", pace=pace)

    own = PoolWorkers(Api(file), name="p", namespace="llama", pace=pace)
    return ImportedWorkers(
        own, Api(file), name="p", namespace="llama", cluster=opened if way else None, pace=pace
    )


def exported(*clusters: str) -> dict[str, object]:
    status = {"controllers": [{"exportingClusters": [{"name": name} for name in clusters]}]}
    return {"metadata": {"name": "p", "namespace": "llama"}, "status": status}


@pytest.mark.parametrize(("status", "state"), [(404, "missing"), (403, "refused")])
async def test_without_imports_the_clusters_own_workers_serve(
    server: ApiServer,
    tmp_path: Path,
    write_kubeconfig: Callable[..., Path],
    quick: Pace,
    until: Until,
    status: int,
    state: str,
) -> None:
    server.objects = {PODS: {}, POOLS: {}}
    server.statuses[IMPORTS] = status
    server.put(POOLS, pool(8000))
    server.put(PODS, pod("a", "10.0.0.1"))
    source = importing(server, write_kubeconfig(tmp_path / "k", {"here": server}), quick)
    async with following(source) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"})
        await until(lambda: source.status()["imports"]["state"] == state)
        assert source.status()["pods"]["state"] == "watching"
        assert source.status()["clusters"] == {}


@pytest.mark.parametrize("way", [True, False])
async def test_a_cluster_that_nobody_knows_a_way_to_is_shown_and_costs_no_worker_of_the_others(
    server: ApiServer,
    tmp_path: Path,
    write_kubeconfig: Callable[..., Path],
    quick: Pace,
    until: Until,
    way: bool,
) -> None:
    server.objects = {PODS: {}, POOLS: {}, IMPORTS: {}}
    server.put(POOLS, pool(8000))
    server.put(PODS, pod("a", "10.0.0.1"))
    server.put(IMPORTS, exported("nowhere"))
    source = importing(server, write_kubeconfig(tmp_path / "k", {"here": server}), quick, way=way)
    async with following(source) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"})
        await until(lambda: "nowhere" in source.status()["clusters"])
        if not way:
            assert source.status()["clusters"]["nowhere"] is None
            return
        await until(lambda: source.status()["clusters"]["nowhere"]["pools"]["state"] == "away")
        assert "nowhere" in source.status()["clusters"]["nowhere"]["pools"]["fault"]
        assert taken.addresses == {"10.0.0.1:8000"}


async def test_a_kind_is_found_in_the_group_that_it_moved_to(
    api: Api, server: ApiServer, quick: Pace, until: Until
) -> None:
    server.objects = {MOVED: {}}
    server.put(MOVED, {"metadata": {"name": "o", "namespace": "llama"}, "spec": {"priority": 4}})
    source = Objects(api, "inferenceobjectives", namespace="llama", read=read_objective, pace=quick)
    async with running(source.run()):
        await until(lambda: bool(source.objects))
        assert source.objects["llama/o"].priority == 4
        assert source.status()["path"] == MOVED


async def test_a_group_that_is_not_there_is_not_listed_and_so_never_denied(
    api: Api, server: ApiServer, quick: Pace, until: Until
) -> None:
    """Rights to a group that has no such kind need not exist: what everybody may ask is asked first."""
    source = Objects(api, "inferenceobjectives", namespace="llama", read=read_objective, pace=quick)
    async with running(source.run()):
        await until(lambda: source.status()["state"] == "missing")
    called = [path for path, _ in server.calls]
    assert OBJECTIVES in called
    assert MOVED not in called
