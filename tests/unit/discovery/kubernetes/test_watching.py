"""Watches against an API server that restarts, forgets, refuses, falls silent."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from discovery.found import Endpoint, Peer
from discovery.kubernetes import keeping
from discovery.kubernetes.api import Api, ApiError
from discovery.kubernetes.imported import ImportedWorkers
from discovery.kubernetes.mirror import Mirror, Pace
from discovery.kubernetes.objects import Objects
from discovery.kubernetes.peers import SlicePeers
from discovery.kubernetes.workers import PoolWorkers
from tests.tools.certificates import Authority
from tests.unit.discovery.kubernetes.conftest import ApiServer

Until = Callable[[Callable[[], bool]], Awaitable[None]]
PODS = "/api/v1/namespaces/llama/pods"
POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/llama/inferencepools"
OLD_POOLS = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/llama/inferencepools"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/llama/endpointslices"
IMPORTS = "/apis/inference.networking.x-k8s.io/v1alpha1/namespaces/llama/inferencepoolimports"
OBJECTIVES = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/llama/inferenceobjectives"


def pod(name: str, ip: str, *, ready: bool = True, app: str = "llama") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "llama", "labels": {"app": app}},
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def pool(*ports: int, app: str = "llama", name: str = "p") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "llama"},
        "spec": {
            "selector": {"matchLabels": {"app": app}},
            "targetPorts": [{"number": port} for port in ports],
        },
    }


class Following:
    """The last set of a source, as it goes."""

    def __init__(self, source: Any) -> None:
        self.sets: list[frozenset[Any]] = []
        self._source = source

    async def run(self) -> None:
        async for found in self._source.sets():
            self.sets.append(found)

    @property
    def addresses(self) -> set[str]:
        return {each.address for each in self.sets[-1]} if self.sets else set()


@asynccontextmanager
async def following(source: Any) -> AsyncIterator[Following]:
    taken = Following(source)
    task = asyncio.create_task(taken.run())
    try:
        yield taken
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def workers(api: Api, server: ApiServer, quick: Pace) -> PoolWorkers:
    server.objects = {PODS: {}, POOLS: {}}
    return PoolWorkers(api, name="p", namespace="llama", pace=quick)


async def test_ready_pods_of_the_pool_are_workers_and_follow_every_change(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    server.put(POOLS, pool(1, name="another"))
    server.put(PODS, pod("a", "10.0.0.1"))
    server.put(PODS, pod("z", "10.0.0.9", app="other"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"})
        server.put(PODS, pod("b", "fd00::2"))
        await until(lambda: taken.addresses == {"10.0.0.1:8000", "[fd00::2]:8000"})
        server.put(PODS, pod("a", "10.0.0.1", ready=False))
        await until(lambda: taken.addresses == {"[fd00::2]:8000"})
        server.put(PODS, pod("a", "10.0.0.1"))
        server.put(PODS, pod("b", "fd00::2", app="relabelled"))
        await until(lambda: taken.addresses == {"10.0.0.1:8000"})
        server.delete(PODS, "a")
        await until(lambda: taken.addresses == set() and len(taken.sets) > 1)
        assert len(server.lists(PODS)) == 1
        assert workers.status()["pods"]["state"] == "watching"
        assert workers.age(time.monotonic()) < 30


async def test_the_first_set_is_whole_however_many_pages_it_has(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.page_most = 3
    server.put(POOLS, pool(8000))
    for number in range(10):
        server.put(PODS, pod(f"n{number}", f"10.0.1.{number}"))
    async with following(workers) as taken:
        await until(lambda: bool(taken.sets))
    assert len(taken.sets[0]) == 10
    assert len(server.lists(PODS)) == 4


async def test_ports_and_selector_of_the_pool_may_change(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000, 8001))
    server.put(PODS, pod("a", "10.0.0.1"))
    server.put(PODS, pod("b", "10.0.0.2", app="new"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000", "10.0.0.1:8001"})
        assert Endpoint("10.0.0.1:8001", 1, {"app": "llama"}) in taken.sets[-1]
        server.put(POOLS, pool(8000))
        await until(lambda: taken.addresses == {"10.0.0.1:8000"})
        server.put(POOLS, pool(8000, app="new"))
        await until(lambda: taken.addresses == {"10.0.0.2:8000"})
    assert frozenset() not in taken.sets


async def test_a_pool_that_goes_or_turns_into_nonsense_is_followed_as_it_was(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    server.put(PODS, pod("a", "10.0.0.1"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"})
        server.put(POOLS, pool())
        await until(lambda: workers.counts.unusable == 1)
        server.delete(POOLS, "p")
        await until(lambda: workers.counts.empty == 1)
        assert workers.status()["pool"]["deleted"]
        server.put(PODS, pod("b", "10.0.0.2"))
        await until(lambda: taken.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
        server.put(POOLS, pool(9000))
        await until(lambda: taken.addresses == {"10.0.0.1:9000", "10.0.0.2:9000"})
    assert frozenset() not in taken.sets


async def test_an_older_pool_is_found_where_the_newer_kind_is_missing(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.objects = {PODS: {}, OLD_POOLS: {}}
    spec = {"selector": {"app": "llama"}, "targetPortNumber": 7}
    server.put(OLD_POOLS, {"metadata": {"name": "p", "namespace": "llama"}, "spec": spec})
    server.put(PODS, pod("a", "10.0.0.1"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:7"})


async def test_a_missing_kind_is_told_and_taken_up_once_it_is_there(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    del server.objects[POOLS]
    server.put(PODS, pod("a", "10.0.0.1"))
    async with following(workers) as taken:
        await until(lambda: workers.status()["pools"]["state"] == "missing")
        assert not taken.sets
        assert not server.lists(OLD_POOLS), "a kind that is not there is not asked for: that would be denied"
        server.put(POOLS, pool(8000))
        await until(lambda: taken.addresses == {"10.0.0.1:8000"})


async def test_a_kind_that_may_not_be_read_is_told_with_the_servers_words(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.statuses[POOLS] = 403
    async with following(workers):
        await until(lambda: workers.status()["pools"]["state"] == "refused")
        assert "told to say 403" in workers.status()["pools"]["fault"]


async def test_a_server_is_reached_by_ipv6(
    tmp_path: Path, write_kubeconfig: Callable[..., Path], until: Until, quick: Pace
) -> None:
    six = ApiServer(host="::1", objects={PODS: {}, POOLS: {}})
    await six.start()
    six.put(POOLS, pool(8000))
    six.put(PODS, pod("a", "fd00::1"))
    api = Api(write_kubeconfig(tmp_path / "kubeconfig", {"six": six}))
    async with following(PoolWorkers(api, name="p", namespace="llama", pace=quick)) as taken:
        await until(lambda: taken.addresses == {"[fd00::1]:8000"})
    await six.stop()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_what_is_known_comes_to_equal_what_the_server_has(
    api: Api, server: ApiServer, until: Until, quick: Pace, seed: int
) -> None:
    rng = random.Random(seed)
    server.objects, server.page_most = {PODS: {}}, 3
    seen = Mirror(
        api, [PODS], read=lambda entry: entry["metadata"]["resourceVersion"], changed=lambda: None, pace=quick
    )
    async with running(seen.run()):
        for _ in range(80):
            happens = rng.choices(
                ["put", "delete", "cut", "forget", "fail", "restart"], [40, 20, 4, 2, 2, 1]
            )[0]
            names = list(server.objects[PODS])
            if happens == "put" or (happens == "delete" and not names):
                server.put(PODS, pod(f"n{rng.randrange(12)}", "10.0.0.1"))
            elif happens == "delete":
                server.delete(PODS, rng.choice(names))
            elif happens == "cut":
                await server.cut()
            elif happens == "forget":
                server.history.clear()
                server.forget()
                await server.cut()
            elif happens == "fail":
                server.statuses[PODS] = rng.choice([500, 503, 429, 410])
                await server.cut()
                await asyncio.sleep(0.05)
                server.statuses.clear()
            else:
                await server.stop()
                await server.start()
            await asyncio.sleep(rng.choice([0, 0, 0.01]))

        def equal() -> bool:
            has = {
                f"llama/{name}": each["metadata"]["resourceVersion"]
                for name, each in server.objects[PODS].items()
            }
            return seen.objects == has

        # equal it may be already while the watch is still on its way back
        await until(lambda: equal() and seen.state == "watching")


async def test_a_restart_of_the_server_changes_nothing_and_watches_resume_where_they_were(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    server.put(PODS, pod("a", "10.0.0.1"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"} and bool(server.watches))
        await server.stop()
        await until(lambda: workers.counts.failures > 2)
        server.put(PODS, pod("b", "10.0.0.2"))
        await server.start()
        await until(lambda: taken.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
    assert [len(found) for found in taken.sets] == [1, 2]
    assert len(server.lists(PODS)) == 1
    assert workers.counts.expired == 0


async def test_what_was_missed_beyond_an_expired_version_is_listed_anew(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    server.put(PODS, pod("a", "10.0.0.1"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"} and len(server.watches) == 2)
        server.history.clear()
        server.objects[PODS] = {"b": pod("b", "10.0.0.2")}
        server.forget()
        await server.cut()
        await until(lambda: taken.addresses == {"10.0.0.2:8000"})
    assert workers.counts.expired >= 1
    assert len(server.lists(PODS)) == 2


async def test_an_expired_version_within_a_watch_is_listed_anew_too(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    async with following(workers):
        await until(lambda: len(server.watches) == 2)
        server.say(PODS, "ERROR", {"code": 410, "message": "too old"})
        await until(lambda: len(server.lists(PODS)) == 2 and workers.counts.expired == 1)


async def test_bookmarks_move_the_place_where_a_watch_resumes(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    async with following(workers):
        await until(lambda: len(server.watches) == 2)
        server.say(PODS, "BOOKMARK", {"metadata": {"resourceVersion": "4711"}})
        await until(lambda: workers.counts.bookmarks >= 1)
        await server.cut()
        await until(lambda: server.watched(PODS)[-1]["resourceVersion"] == "4711")
    assert all(query["allowWatchBookmarks"] == "true" for query in server.watched(PODS))


@pytest.mark.parametrize("code", [500, 429, 503])
async def test_errors_of_the_server_are_retried_with_pauses_that_grow(
    api: Api, server: ApiServer, until: Until, quick: Pace, code: int
) -> None:
    server.objects = {PODS: {}}
    server.statuses[PODS] = code
    seen = Mirror(api, [PODS], read=dict, changed=lambda: None, pace=replace(quick, first=0.05, longest=5.0))
    async with running(seen.run()):
        await until(lambda: seen.counts.failures >= 4)
        assert (seen.state, seen.listed) == ("away", False)
        assert str(code) in seen.fault
        del server.statuses[PODS]
        await until(lambda: seen.state == "watching")


async def test_a_silent_connection_is_given_up_and_what_is_known_stands(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    server.put(PODS, pod("a", "10.0.0.1"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"} and len(server.watches) == 2)
        server.silent = True
        await until(lambda: workers.counts.failures >= 1)
        server.silent = False
        await server.cut()
        server.put(PODS, pod("b", "10.0.0.2"))
        await until(lambda: taken.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
    assert len(taken.sets) == 2


async def test_answers_that_make_no_sense_change_nothing(
    workers: PoolWorkers, server: ApiServer, until: Until
) -> None:
    server.put(POOLS, pool(8000))
    server.put(PODS, pod("a", "10.0.0.1"))
    async with following(workers) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:8000"} and len(server.watches) == 2)
        server.say(PODS, "ADDED", {"no": "metadata"})
        await until(lambda: workers.counts.failures >= 1)
        server.history.pop()
        server.put(PODS, pod("bad", "not an address"))
        await until(lambda: workers.counts.unusable >= 1)
        server.put(PODS, pod("b", "10.0.0.2"))
        await until(lambda: taken.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
        assert "llama/bad" in workers.status()["pods"]["unusable"]


async def test_no_more_objects_are_kept_than_allowed(
    api: Api, server: ApiServer, until: Until, quick: Pace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MAX_OBJECTS", 5)
    server.page_most = 3
    server.objects = {PODS: {}}
    for number in range(8):
        server.put(PODS, pod(f"n{number}", f"10.0.1.{number}"))
    seen = Mirror(api, [PODS], read=dict, changed=lambda: None, pace=quick)
    async with running(seen.run()):
        await until(lambda: bool(server.watches))
        server.put(PODS, pod("z", "10.0.2.1"))
        await until(lambda: seen.counts.events == 1)
        assert len(seen.objects) == 5
        assert seen.counts.overflow >= 2


async def test_a_watch_that_ends_at_once_is_no_busy_loop(
    api: Api, server: ApiServer, quick: Pace, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects = {PODS: {}}

    async def ends(*_: Any, **__: Any) -> AsyncIterator[Any]:
        return
        yield

    monkeypatch.setattr(api, "lines", ends)
    seen = Mirror(api, [PODS], read=dict, changed=lambda: None, pace=replace(quick, first=0.5, longest=5.0))
    async with running(seen.run()):
        await until(lambda: seen.counts.failures >= 1)
        assert "ended as soon" in seen.fault
        assert seen.counts.looks < 20


async def test_a_token_that_is_refused_is_read_anew(
    server: ApiServer, tmp_path: Path, write_kubeconfig: Callable[..., Path], quick: Pace, until: Until
) -> None:
    server.objects = {PODS: {}}
    file = write_kubeconfig(tmp_path / "kubeconfig", {"here": server})
    api = Api(file)
    seen = Mirror(api, [PODS], read=dict, changed=lambda: None, pace=quick)
    async with running(seen.run()):
        await until(lambda: seen.state == "watching")
        server.token = "second"
        await server.cut()
        await until(lambda: "401" in seen.fault)
        write_kubeconfig(file, {"here": server})
        await until(lambda: seen.state == "watching")
    await api.close()


async def test_in_a_pod_the_service_account_is_used(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.aio.config import incluster_config

    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "absent"))
    with pytest.raises(ApiError, match="token file does not exist"):
        await Api().get(PODS)


async def test_a_new_authority_and_a_new_token_of_the_service_account_are_taken_up(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: Pace, until: Until
) -> None:
    from kubernetes.aio.config import incluster_config

    token, authorities = tmp_path / "token", tmp_path / "ca.crt"

    async def serve(name: str) -> None:
        await server.stop()
        (folder := tmp_path / name).mkdir()
        authority = Authority()
        server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.tls.load_cert_chain(*authority.pair("server", ips=["127.0.0.1"]).write(folder))
        server.token = name
        token.write_text(name)
        authorities.write_bytes(authority.pem)
        await server.start()

    server.objects = {PODS: {}}
    await serve("first")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authorities))
    api = Api()
    seen = Mirror(api, [PODS], read=lambda entry: 1, changed=lambda: None, pace=quick)
    async with running(seen.run()):
        await until(lambda: seen.state == "watching")
        await serve("second")
        server.put(PODS, pod("a", "10.0.0.1"))
        await until(lambda: "llama/a" in seen.objects)
    await api.close()


async def test_without_any_configuration_the_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="no usable configuration"):
        await Api(tmp_path / "absent").get(PODS)


async def test_peers_are_those_of_the_services_slices_and_are_never_nobody(
    api: Api, server: ApiServer, quick: Pace, until: Until
) -> None:
    def sliced(name: str, *addresses: str, service: str = "peers") -> dict[str, Any]:
        return {
            "metadata": {
                "name": name,
                "namespace": "llama",
                "labels": {"kubernetes.io/service-name": service},
            },
            "endpoints": [{"addresses": list(addresses)}],
        }

    server.objects = {SLICES: {}}
    server.put(SLICES, sliced("one", "10.0.0.1"))
    server.put(SLICES, sliced("else", "10.9.9.9", service="another"))
    source = SlicePeers(api, "peers.llama.svc", namespace="home", port=9092, pace=quick)
    async with following(source) as taken:
        await until(lambda: taken.addresses == {"10.0.0.1:9092"})
        server.put(SLICES, sliced("six", "fd00::1"))
        await until(lambda: taken.addresses == {"10.0.0.1:9092", "[fd00::1]:9092"})
        server.put(SLICES, sliced("one"))
        await until(lambda: taken.sets[-1] == {Peer("fd00::1", "[fd00::1]:9092")})
        server.delete(SLICES, "six")
        await until(lambda: source.counts.empty == 1)
    assert frozenset() not in taken.sets


async def test_workers_of_other_clusters_are_added_while_the_import_names_them(
    server: ApiServer, tmp_path: Path, write_kubeconfig: Callable[..., Path], quick: Pace, until: Until
) -> None:
    east = ApiServer()
    await east.start()
    try:
        server.objects = {PODS: {}, POOLS: {}, IMPORTS: {}}
        east.objects = {PODS: {}, POOLS: {}}
        east.put(POOLS, pool(7000))
        east.put(PODS, pod("e", "10.1.0.1"))
        status = {"controllers": [{"exportingClusters": [{"name": "east"}]}]}
        named = {"metadata": {"name": "p", "namespace": "llama"}, "status": status}
        server.put(IMPORTS, named)
        file = write_kubeconfig(tmp_path / "kubeconfig", {"here": server, "east": east})

        def opened(context: str) -> PoolWorkers:
            return PoolWorkers(Api(file, context=context), name="p", namespace="llama", pace=quick)

        source = ImportedWorkers(
            opened("here"), Api(file), name="p", namespace="llama", cluster=opened, pace=quick
        )
        async with following(source) as taken:
            await until(lambda: taken.addresses == {"10.1.0.1:7000"})
            server.put(POOLS, pool(8000))
            server.put(PODS, pod("a", "10.0.0.1"))
            await until(lambda: taken.addresses == {"10.0.0.1:8000", "10.1.0.1:7000"})
            await east.stop()
            server.put(PODS, pod("b", "10.0.0.2"))
            await until(lambda: len(taken.addresses) == 3)
            assert source.status()["clusters"]["east"]["pods"]["objects"] == 1
            server.delete(IMPORTS, "p")
            await until(lambda: taken.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
    finally:
        await east.stop()


async def test_objects_are_settled_when_they_are_read_or_known_not_to_be_there(
    api: Api, server: ApiServer, quick: Pace, until: Until
) -> None:
    source = Objects(
        api, "inferenceobjectives", namespace="llama", read=lambda entry: entry["spec"], pace=quick
    )
    assert not source.settled
    async with running(source.run()):
        await until(lambda: source.settled)
        assert source.status()["state"] == "missing"
        server.objects[OBJECTIVES] = {}
        server.put(OBJECTIVES, {"metadata": {"name": "o", "namespace": "llama"}, "spec": {"priority": 1}})
        await until(lambda: source.objects == {"llama/o": {"priority": 1}})
        assert source.number >= 1
