"""`helm install` with three replicas on a real control plane: ready, asked in equal shares, gone without a trace."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.kubernetes.asking import Asking, until
from tests.kubernetes.cluster.gateway import Gateway
from tests.kubernetes.cluster.helm import Release
from tests.kubernetes.cluster.running import Running
from tests.kubernetes.cluster.trial import RELEASE, Trial, admin_secret, values

PEERS_PORT = 9092
REQUESTS = 120


def slice_addresses(running: Running, namespace: str, service: str) -> set[str]:
    """Addresses in the EndpointSlices of a Service."""
    label = f"kubernetes.io/service-name={service}"
    found = running.get("endpointslices", "-n", namespace, "-l", label)
    return {
        address
        for each in found["items"]
        for endpoint in each["endpoints"] or ()
        for address in endpoint["addresses"]
    }


async def shares(ask: Asking, installed: Trial, gateway: str) -> list[int]:
    """Send requests through a gateway; how many picks each replica made, the fewest first."""
    replicas = installed.release.replicas()
    before = await ask.picks(replicas)
    await ask.answers(gateway, REQUESTS)
    after = await ask.picks(replicas)
    return sorted(after[name] - before[name] for name in replicas)


def test_three_replicas_get_ready_without_a_restart(installed: Trial) -> None:
    found = installed.release.running.get(
        "pods", "-n", installed.release.namespace, "-l", installed.release.selector
    )
    counts = [
        status["restartCount"] for pod in found["items"] for status in pod["status"]["containerStatuses"]
    ]
    assert counts == [0, 0, 0]
    assert len(installed.release.replicas()) == 3


async def test_each_replica_finds_the_pools_workers_by_its_own_rights(installed: Trial, ask: Asking) -> None:
    workers = set(installed.engines.addresses().values())
    assert len(workers) == 4
    for address in installed.release.replicas().values():
        page = await ask.status(address)
        assert {each["name"].partition("#")[0] for each in page["workers"]} == workers


async def test_a_request_is_answered_by_an_engine_of_the_pool(
    installed: Trial, gateway: str, ask: Asking
) -> None:
    assert (await ask.answer(gateway)).worker in installed.engines.addresses()


async def test_the_same_prompt_goes_where_its_prefix_is_held(gateway: str, ask: Asking) -> None:
    prompt = " ".join(f"lighthouse {number}" for number in range(200))
    first = await ask.answer(gateway, prompt)
    assert first.cached_tokens == 0

    async def held() -> bool:
        answers = [await ask.answer(gateway, prompt) for _ in range(6)]
        return all(each.cached_tokens > 0.9 * first.prompt_tokens for each in answers)

    await until(held, seconds=20, what="every replica knows where it is held")


async def test_peers_equal_the_endpoint_slices(installed: Trial, ask: Asking) -> None:
    release = installed.release
    expected = slice_addresses(release.running, release.namespace, f"{release.objects}-peers")
    assert expected == set(release.replicas(ready=False).values())

    async def equal() -> bool:
        pages = [await ask.status(address) for address in release.replicas().values()]
        return all({peer.rpartition(":")[0] for peer in page["peers"]} == expected for page in pages)

    await until(equal, seconds=5, what="all replicas name all peers")


@pytest.fixture(scope="module")
def by_endpoints(installed: Trial) -> Iterator[str]:
    """A gateway that reads EndpointSlices."""
    made = replace(installed.gateway, name="by-endpoints", finding="endpoints")
    yield made.start()
    made.stop()


@pytest.fixture(scope="module")
def by_cluster_ip(installed: Trial) -> Iterator[str]:
    """A gateway that resolves the name of a Service with a ClusterIP before the same replicas."""
    release = installed.release
    service = release.running.get("service", release.objects, "-n", release.namespace)
    ports = [{"name": each["name"], "port": each["port"]} for each in service["spec"]["ports"]]
    made = Gateway(release.running, "by-cluster-ip", release.namespace, "one-address")
    release.running.apply({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": made.service, "namespace": release.namespace},
        "spec": {"selector": service["spec"]["selector"], "ports": ports},
    })  # fmt: skip
    yield made.start()
    made.stop()
    release.running.kubectl("-n", release.namespace, "delete", "service", made.service)


async def test_by_name_every_replica_gets_its_share(installed: Trial, gateway: str, ask: Asking) -> None:
    assert_equal(await shares(ask, installed, gateway))


async def test_by_endpoints_every_replica_gets_its_share(
    installed: Trial, by_endpoints: str, ask: Asking
) -> None:
    assert_equal(await shares(ask, installed, by_endpoints))


async def test_behind_one_address_a_replica_gets_nothing(
    installed: Trial, by_cluster_ip: str, ask: Asking
) -> None:
    """Envoy holds one connection to the address for each of its two threads, so a third replica is never met."""
    found = await shares(ask, installed, by_cluster_ip)
    assert found[0] == 0, found
    assert sum(found) >= REQUESTS


def assert_equal(found: list[int]) -> None:
    mean = sum(found) / len(found)
    assert sum(found) >= REQUESTS
    assert found[0] > 0.7 * mean, found
    assert found[-1] < 1.3 * mean, found


def everything(running: Running, namespace: str) -> Counter[str]:
    """How many objects of each kind a namespace holds; events and what every namespace has are not counted."""
    kinds = running.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    counted = ",".join(kind for kind in kinds if not kind.startswith("events"))
    found = json.loads(running.kubectl("get", counted, "-n", namespace, "-o", "json"))["items"]
    return Counter(each["kind"] for each in found if not native(each))


def native(item: dict[str, Any]) -> bool:
    """Whether every namespace has it."""
    return (item["kind"], item["metadata"]["name"]) in {
        ("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"),
    }  # fmt: skip


async def test_uninstall_leaves_nothing(cluster: Running) -> None:
    namespace = "to-be-left"
    release = Release(cluster, RELEASE, namespace)
    cluster.apply(*admin_secret(namespace))
    before = everything(cluster, namespace)
    release.install(values(replicas=2))
    assert everything(cluster, namespace)["Pod"] == 4
    release.uninstall()

    async def gone() -> bool:
        return everything(cluster, namespace) == before

    # the replicas serve on for a while
    await until(gone, seconds=60, what="all that was installed is gone")
    cluster.kubectl("delete", "namespace", namespace)


def test_no_call_of_a_replica_is_denied(installed: Trial) -> None:
    account = f"system:serviceaccount:{installed.release.namespace}:{installed.release.objects}"
    calls = [each for each in installed.release.running.audit() if each["user"]["username"] == account]
    assert {each["objectRef"]["resource"] for each in calls} == {"inferencepools", "pods"}
    denied = [each for each in installed.release.running.denied() if each["user"]["username"] == account]
    assert not denied
