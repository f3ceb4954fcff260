"""Each fault of a release: what it calls, what proves it, and that it is undone whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chaos.injectors import Fault, Injection, InjectionError
from chaos.injectors.process import freeze, kill, terminate
from chaos.injectors.release import cordon, cut_off, evict, rollout, scale
from chaos.story import JOINS, LEAVES, RESTARTS
from chaos.targets.kube import faults, proofs
from chaos.targets.kube.faults import calls_of
from chaos.targets.kube.target import Kube
from tests.unit.chaos.kube.cluster import Cluster

MAKERS: dict[str, Callable[[str], Injection]] = {
    "kill": kill,
    "terminate": terminate,
    "evict": evict,
    "rollout": lambda _name: rollout(),
    "scale out": lambda _name: scale(2),
    "scale in": lambda _name: scale(-1),
    "cordon": cordon,
    "cut off": cut_off,
}


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.02)


def phases(heard: list[Fault], kind: str) -> list[str]:
    """The phases of all lives of a kind."""
    return [each.phase for each in heard if each.kind == kind]


def spread(cluster: Cluster) -> dict[str, object]:
    """What must be after a fault as it was before."""
    return {
        "replicas": cluster.deployments["llama-epp"]["spec"]["replicas"],
        "pods": len(cluster.names("llama")),
        "policies": dict(cluster.policies),
        "cordoned": [name for name, node in cluster.nodes.items() if node["spec"].get("unschedulable")],
        "annotated": [name for name, node in cluster.nodes.items() if node["metadata"].get("annotations")],
        "marked": [
            name for name, pod in cluster.pods.items() if "chaos.picker/cut-off" in pod["metadata"]["labels"]
        ],
    }


@pytest.mark.parametrize("name", MAKERS)
async def test_a_fault_is_told_proven_and_undone_and_its_calls_are_those_of_the_dry_run(
    cluster: Cluster, kube: Kube, heard: list[Fault], name: str
) -> None:
    before = spread(cluster)
    injection = MAKERS[name](cluster.names("llama")[0])
    done, undone = calls_of(injection, kube)
    async with kube.enter(injection):
        during = spread(cluster)
    assert phases(heard, injection.kind) == ["begin", "seen", "healing", "healed"]
    assert spread(cluster) == before
    made = [
        (each.verb, each.resource, "" if "*" in planned.name else each.name)
        for each, planned in zip(kube.calls, (*done, *undone), strict=True)
    ]
    assert made == [
        (each.verb, each.resource, "" if "*" in each.name else each.name) for each in (*done, *undone)
    ]
    assert len(cluster.calls) == len(kube.calls), "nothing is changed past the hand"
    if name not in ("kill", "terminate", "evict", "rollout"):
        assert during != before


@pytest.mark.parametrize("name", MAKERS)
async def test_a_fault_is_undone_when_its_body_raises(
    cluster: Cluster, kube: Kube, heard: list[Fault], name: str
) -> None:
    before = spread(cluster)
    with pytest.raises(RuntimeError, match="in the middle"):
        async with kube.enter(MAKERS[name](cluster.names("llama")[0])):
            raise RuntimeError("in the middle")
    assert spread(cluster) == before
    assert [each.phase for each in heard if each.kind not in (JOINS, LEAVES)][-1] == "healed"


@pytest.mark.parametrize("name", MAKERS)
async def test_a_fault_is_undone_when_its_task_is_cancelled(
    cluster: Cluster, kube: Kube, heard: list[Fault], name: str
) -> None:
    before = spread(cluster)
    entered = asyncio.Event()

    async def play() -> None:
        async with kube.enter(MAKERS[name](cluster.names("llama")[0])):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(play())
    async with asyncio.timeout(10):
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert spread(cluster) == before
    assert [each.phase for each in heard if each.kind not in (JOINS, LEAVES)][-1] == "healed"


@pytest.mark.parametrize("name", ["scale out", "cordon", "cut off"])
async def test_undoing_outlasts_an_api_server_that_restarts(
    cluster: Cluster, kube: Kube, heard: list[Fault], name: str
) -> None:
    before = spread(cluster)
    async with kube.enter(MAKERS[name](cluster.names("llama")[0])):
        ends = {"scale out": "/scale", "cordon": "/nodes/node-0", "cut off": ""}
        for method in ("PATCH", "DELETE"):
            cluster.answers[method, ends[name]] = [503, 500]
    assert spread(cluster) == before
    assert phases(heard, MAKERS[name]("").kind)[-1] == "healed"


async def test_a_pod_that_is_killed_is_deleted_without_grace_and_by_its_identity(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    name = cluster.names("llama")[0]
    async with kube.enter(kill(name)):
        assert name not in cluster.pods
    ((method, path, body),) = cluster.calls
    assert (method, path.rpartition("/")[2]) == ("DELETE", name)
    assert (body["gracePeriodSeconds"], body["preconditions"]) == (0, {"uid": f"uid-{name}"})
    assert (
        next(each for each in heard if each.phase == "seen" and each.kind == "kill").value["uid"]
        == f"uid-{name}"
    )


async def test_a_pod_whose_process_lives_on_was_not_killed(
    cluster: Cluster, kube: Kube, heard: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "CUT_SECONDS", 0.3)

    async def answers(_replica: str, _address: str) -> bool:
        return True

    monkeypatch.setattr(kube, "answers", answers)
    with pytest.raises(InjectionError, match="still answers"):
        async with kube.enter(kill(cluster.names("llama")[0])):
            pytest.fail("it did not come about")
    assert phases(heard, "kill") == ["begin", "healing", "healed"]


async def test_a_disruption_budget_is_waited_for_and_told(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    cluster.forbids_evictions = 3
    async with kube.enter(evict(cluster.names("llama")[0])):
        pass
    proof = next(each.value for each in heard if each.kind == "evict" and each.phase == "seen")
    assert proof["forbidden_by_budget"] == 3


async def test_a_disruption_budget_that_never_allows_it_is_named(
    cluster: Cluster, kube: Kube, heard: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "BUDGET_SECONDS", 0.1)
    cluster.forbids_evictions = 10_000
    with pytest.raises(InjectionError, match=r"PodDisruptionBudget forbids.*disruption budget"):
        async with kube.enter(evict(cluster.names("llama")[0])):
            pytest.fail("it was evicted")
    assert not phases(heard, LEAVES)


async def test_a_policy_that_nobody_enforces_is_no_fault_and_is_taken_back(
    cluster: Cluster, kube: Kube, heard: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "CUT_SECONDS", 0.2)
    cluster.enforces = False
    before = spread(cluster)
    with pytest.raises(InjectionError, match="enforces none, or another policy"):
        async with kube.enter(cut_off(cluster.names("llama")[0])):
            pytest.fail("it had no effect")
    assert spread(cluster) == before
    assert phases(heard, "cut-off") == ["begin", "healing", "healed"]


async def test_the_policy_selects_one_pod_of_the_release_alone(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    name = cluster.names("llama")[0]
    async with kube.enter(cut_off(name)):
        (policy,) = cluster.policies.values()
        selected = policy["spec"]["podSelector"]["matchLabels"].items()
        assert [
            each for each, pod in cluster.pods.items() if selected <= pod["metadata"]["labels"].items()
        ] == [name]
        assert policy["spec"]["policyTypes"] == ["Egress"]
        assert policy["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "picker-chaos"
    assert heard


async def test_a_node_that_somebody_else_cordoned_stays_cordoned(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    cluster.nodes["node-0"]["spec"]["unschedulable"] = True
    with pytest.raises(InjectionError, match="cordoned already"):
        async with kube.enter(cordon(cluster.names("llama")[0])):
            pytest.fail("it is not ours to cordon")
    assert cluster.nodes["node-0"]["spec"]["unschedulable"]
    assert not cluster.calls
    assert heard


async def test_a_drained_node_is_open_again_and_the_release_whole(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    name = cluster.names("llama")[0]
    async with kube.enter(cordon(name)), kube.enter(evict(name, back=False)):
        await asyncio.sleep(0.1)
        assert not any(each.ready for each in kube.members.replicas.values() if not each.node)
    assert not cluster.nodes["node-0"]["spec"].get("unschedulable")
    assert kube.members.whole
    assert phases(heard, "evict")[-1] == "healed"


async def test_a_rollout_exchanges_every_pod(cluster: Cluster, kube: Kube, heard: list[Fault]) -> None:
    before = set(cluster.names("llama"))
    async with kube.enter(rollout()):
        pass
    assert not before & set(cluster.pods)
    assert {each.target for each in heard if each.kind == LEAVES and each.phase == "healed"} == before
    assert len({each.target for each in heard if each.kind == JOINS and each.phase == "healed"}) == 3


async def test_a_release_is_never_scaled_to_nothing(cluster: Cluster, kube: Kube, heard: list[Fault]) -> None:
    with pytest.raises(InjectionError, match="3 replicas run, and at least one"):
        async with kube.enter(scale(-3)):
            pytest.fail("nothing would be left")
    assert cluster.deployments["llama-epp"]["spec"]["replicas"] == 3
    assert heard


async def test_a_fault_of_loopback_is_refused_by_name(kube: Kube) -> None:
    with pytest.raises(InjectionError, match="freeze cannot be done to a release"):
        kube.enter(freeze("picker-0"))


async def test_replicas_that_come_and_go_by_themselves_are_told(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    cluster.deployments["llama-epp"]["spec"]["replicas"] = 4
    names = await cluster.whole("llama", 4)
    await until(lambda: set(kube.replicas()) == set(names))
    assert phases(heard, JOINS) == ["begin", "seen", "healed"]
    cluster.deployments["llama-epp"]["spec"]["replicas"] = 2
    await until(lambda: len(kube.replicas()) == 2)
    assert phases(heard, LEAVES).count("healed") == 2


async def test_a_replica_that_ends_by_itself_is_told_with_its_end(
    cluster: Cluster, kube: Kube, heard: list[Fault]
) -> None:
    name = cluster.names("llama")[0]
    status = cluster.pods[name]["status"]
    status["containerStatuses"] = [{"name": "picker", "restartCount": 0}]
    await until(lambda: kube.members.looks > 2)
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    status["containerStatuses"] = [{"name": "picker", "restartCount": 1, "lastState": ended}]
    await until(lambda: phases(heard, RESTARTS)[-1:] == ["healed"])
    assert phases(heard, RESTARTS) == ["begin", "seen", "healed"]
    assert next(each for each in heard if each.kind == RESTARTS).value == {
        "restarts": 1, "ended": "exit code 137, OOMKilled",
    }  # fmt: skip
