"""Nothing but the release is touched, whatever bears its name, its labels, or a name that begins like its own."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from chaos.injectors import Fault, InjectionError
from chaos.injectors.process import kill, terminate
from chaos.injectors.release import cordon, cut_off, evict
from chaos.targets import TargetError
from chaos.targets.kube.hand import denial
from chaos.targets.kube.release import NotOursError
from chaos.targets.kube.target import Kube
from tests.unit.chaos.kube.cluster import Cluster, Object

POD_FAULTS = (kill, terminate, evict, cordon, cut_off)


def planted(cluster: Cluster, change: Callable[[Object], None], name: str = "llama-epp-0000-planted") -> str:
    """A pod that differs from a replica in one thing."""
    pod = deepcopy(cluster.pods[cluster.names("llama")[0]])
    pod["metadata"].update(name=name, uid=f"uid-{name}")
    pod["_foreign"] = True
    change(pod)
    cluster.pods[name] = pod
    return name


def another_release(pod: Object) -> None:
    pod["metadata"]["labels"]["app.kubernetes.io/instance"] = "llama-2"


def another_chart(pod: Object) -> None:
    pod["metadata"]["labels"]["app.kubernetes.io/name"] = "vllm"


def another_part(pod: Object) -> None:
    pod["metadata"]["labels"]["app.kubernetes.io/component"] = "valkey"


def no_labels(pod: Object) -> None:
    pod["metadata"]["labels"] = {}


def nobodys(pod: Object) -> None:
    pod["metadata"]["ownerReferences"] = []


def a_jobs(pod: Object) -> None:
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "llama-epp-0000", "controller": True}]


def another_deployments(pod: Object) -> None:
    template = pod["metadata"]["labels"]["pod-template-hash"]
    owner = {"kind": "ReplicaSet", "name": f"llama-epp-canary-{template}", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]


def referred_to_only(pod: Object) -> None:
    pod["metadata"]["ownerReferences"][0]["controller"] = False


TRICKS = (
    another_release,
    another_chart,
    another_part,
    no_labels,
    nobodys,
    a_jobs,
    another_deployments,
    referred_to_only,
)


@pytest.mark.parametrize(
    ("fault", "trick"),
    [
        *((kill, trick) for trick in TRICKS),
        *((fault, trick) for fault in POD_FAULTS[1:] for trick in TRICKS[:1]),
    ],
    ids=lambda each: each.__name__,
)
async def test_a_pod_that_is_no_replica_of_the_release_is_refused(
    cluster: Cluster, kube: Kube, heard: list[Fault], fault: Any, trick: Callable[[Object], None]
) -> None:
    if fault is cordon:
        cluster.nodes["node-9"] = {"metadata": {"name": "node-9"}, "spec": {}}
    name = planted(cluster, trick)
    if fault is cordon:
        cluster.pods[name]["spec"]["nodeName"] = "node-9"
    before = deepcopy(cluster.pods[name]["metadata"])
    with pytest.raises(InjectionError):
        async with kube.enter(fault(name)):
            pytest.fail("it was done")
    assert cluster.pods[name]["metadata"] == before
    assert cluster.calls == []
    assert heard


async def test_a_release_whose_name_begins_alike_lives_untouched_beside_it(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    cluster.install("llama-2", replicas=2)
    theirs = await cluster.whole("llama-2", 2)
    with pytest.raises(NotOursError, match="instance is 'llama-2', not 'llama'"):
        await kube.hand.delete_pod(theirs[0], grace=0)
    async with kube.enter(kill(cluster.names("llama")[0])):
        pass
    assert cluster.names("llama-2") == theirs
    assert not set(theirs) & {*kube.replicas()}
    assert heard


async def test_a_pod_that_got_the_name_meanwhile_is_not_deleted(
    cluster: Cluster, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = cluster.names("llama")[0]
    own_pod = kube.hand.own_pod

    async def replaced(asked: str) -> str:
        uid = await own_pod(asked)
        cluster.pods[asked]["metadata"]["uid"] = "uid-of-another"
        return uid

    monkeypatch.setattr(kube.hand, "own_pod", replaced)
    with pytest.raises(Exception, match="HTTP 409"):
        await kube.hand.delete_pod(name, grace=0)
    assert "deletionTimestamp" not in cluster.pods[name]["metadata"]


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("labels", "app.kubernetes.io/instance", "llama-2"),
        ("labels", "app.kubernetes.io/component", "nats"),
        ("labels", "app.kubernetes.io/name", "other"),
        ("annotations", "meta.helm.sh/release-name", "llama-2"),
        ("annotations", "meta.helm.sh/release-namespace", "production"),
    ],
)
async def test_a_deployment_that_has_become_anothers_is_refused(
    cluster: Cluster, kube: Kube, place: str, key: str, value: str
) -> None:
    cluster.deployments["llama-epp"]["metadata"][place][key] = value
    with pytest.raises(NotOursError, match="llama-epp"):
        await kube.hand.scale(9)
    with pytest.raises(NotOursError, match="llama-epp"):
        await kube.hand.restart()
    assert cluster.calls == []


async def test_a_node_that_runs_no_replica_is_refused(cluster: Cluster, kube: Kube) -> None:
    cluster.nodes["node-9"] = {"metadata": {"name": "node-9"}, "spec": {}}
    with pytest.raises(NotOursError, match="node-9 runs no replica"):
        await kube.hand.cordon("node-9")
    assert cluster.calls == []


async def test_a_node_that_another_run_cordoned_is_not_opened(cluster: Cluster, kube: Kube) -> None:
    cluster.nodes["node-0"] = {
        "metadata": {"name": "node-0", "annotations": {"chaos.picker/cordoned-by": "staging/llama-2"}},
        "spec": {"unschedulable": True},
    }
    assert not await kube.hand.uncordon("node-0")
    assert cluster.calls == []


@pytest.mark.parametrize(
    "change",
    [
        lambda policy: policy["metadata"]["labels"].update({"app.kubernetes.io/managed-by": "Helm"}),
        lambda policy: policy["metadata"]["labels"].update({"app.kubernetes.io/instance": "llama-2"}),
        lambda policy: policy["metadata"].update(labels={}),
        lambda policy: policy["spec"]["podSelector"].update(matchLabels={}),
        lambda policy: policy["spec"]["podSelector"]["matchLabels"].pop("chaos.picker/cut-off"),
        lambda policy: policy["spec"]["podSelector"]["matchLabels"].pop("app.kubernetes.io/instance"),
        lambda policy: policy["spec"]["podSelector"].update(matchExpressions=[]),
    ],
)
async def test_a_policy_that_the_suite_did_not_make_is_never_deleted(
    cluster: Cluster, kube: Kube, change: Callable[[Object], None]
) -> None:
    policy = deepcopy(dict(denial(kube.release, "chart", "x")))
    policy["metadata"]["uid"] = "uid-chart"
    change(policy)
    cluster.policies["chart"] = policy
    with pytest.raises(NotOursError, match="NetworkPolicy chart"):
        await kube.hand.undeny("chart")
    assert "chart" in cluster.policies


async def test_what_an_earlier_run_left_behind_is_taken_away_and_nothing_else(
    cluster: Cluster, make: Callable[..., Kube]
) -> None:
    first = make()
    await first.start()
    await first.hand.deny("picker-chaos-old", "old")
    theirs = deepcopy(cluster.policies["picker-chaos-old"])
    theirs["metadata"]["name"] = "theirs"
    theirs["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    cluster.policies["theirs"] = theirs
    await make().start()
    assert set(cluster.policies) == {"theirs"}


async def test_two_deployments_that_claim_to_be_the_release_are_none(
    cluster: Cluster, make: Callable[..., Kube]
) -> None:
    second = deepcopy(cluster.deployments["llama-epp"])
    second["metadata"]["name"] = "llama-epp-copy"
    second["spec"]["replicas"] = 0
    cluster.deployments["llama-epp-copy"] = second
    with pytest.raises(TargetError, match=r"2 Deployments.*llama-epp, llama-epp-copy"):
        await make().meet()


async def test_a_pod_of_another_namespace_is_refused(kube: Kube, cluster: Cluster) -> None:
    pod = deepcopy(cluster.pods[cluster.names("llama")[0]])
    pod["metadata"]["namespace"] = "production"
    with pytest.raises(NotOursError, match="in namespace 'production'"):
        kube.release.check_pod(pod)
