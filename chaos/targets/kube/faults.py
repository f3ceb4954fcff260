"""How a release is disturbed: pods deleted and evicted, rollouts, scaling, a node cordoned, a replica cut off.

Each is one life of a fault, as on loopback: told, brought about, proven, undone in ``finally``, proven again.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from chaos.injectors import Injection, InjectionError
from chaos.injectors.life import Evidence, life
from chaos.injectors.process import Kill, Terminate
from chaos.injectors.release import Cordon, CutOff, Evict, Rollout, Scale
from chaos.targets.kube import hand as calls
from chaos.targets.kube.hand import Call
from chaos.targets.kube.proofs import (
    AGAIN_SECONDS,
    BACK_SECONDS,
    CUT_SECONDS,
    Place,
    asked,
    gone,
    lost,
    regained,
    stands,
    surely,
    unanswered,
    until,
    whole,
)
from discovery.kubernetes.api import ApiError

BUDGET_SECONDS = 60.0
"""How long a PodDisruptionBudget may forbid an eviction."""
FORBIDDEN_NOW = 429

Deed = Callable[[Place, Any], AbstractAsyncContextManager[None]]


def kill(place: Place, fault: Kill) -> AbstractAsyncContextManager[None]:
    """A pod deleted without grace; left once another one is ready in its place."""

    async def act() -> Evidence:
        address = place.members.pages.get(fault.target, "")
        uid = await place.hand.delete_pod(fault.target, grace=0)
        await until(place, lambda: gone(place, uid), f"the end of {fault.target}", within=CUT_SECONDS)
        await unanswered(place, fault.target, address)
        return {"uid": uid, "grace": 0}

    async def heal() -> Evidence:
        return await whole(place) if fault.back else {}

    return life(
        place, kind=fault.kind, target=fault.target, value={"call": "delete pod, grace 0"}, act=act, heal=heal
    )


def terminate(place: Place, fault: Terminate) -> AbstractAsyncContextManager[None]:
    """A pod deleted in good order; entered once it is gone, left once another one is ready in its place."""

    async def act() -> Evidence:
        uid = await place.hand.delete_pod(fault.target)
        begun = asyncio.get_running_loop().time()
        within = place.hand.release.grace_seconds + CUT_SECONDS
        await until(place, lambda: gone(place, uid), f"the end of {fault.target}", within=within)
        return {"uid": uid, "seconds": round(asyncio.get_running_loop().time() - begun, 1)}

    async def heal() -> Evidence:
        return await whole(place) if fault.back else {}

    return life(place, kind=fault.kind, target=fault.target, value={"call": "delete pod"}, act=act, heal=heal)


def evict(place: Place, fault: Evict) -> AbstractAsyncContextManager[None]:
    """A pod evicted, as a drain of its node does; a PodDisruptionBudget is waited for, and told of."""

    async def act() -> Evidence:
        loop = asyncio.get_running_loop()
        deadline, refused = loop.time() + BUDGET_SECONDS, 0
        while True:
            try:
                uid = await place.hand.evict_pod(fault.target)
                break
            except ApiError as error:
                if error.status != FORBIDDEN_NOW:
                    raise
                refused += 1
                if loop.time() > deadline:
                    raise InjectionError(
                        f"a PodDisruptionBudget forbids to evict {fault.target} for {BUDGET_SECONDS:g} s: {error}"
                    ) from error
                await asyncio.sleep(AGAIN_SECONDS)
        within = place.hand.release.grace_seconds + CUT_SECONDS
        await until(place, lambda: gone(place, uid), f"the end of {fault.target}", within=within)
        return {"uid": uid, "forbidden_by_budget": refused}

    async def heal() -> Evidence:
        return await whole(place) if fault.back else {}

    return life(place, kind=fault.kind, target=fault.target, value={"call": "eviction"}, act=act, heal=heal)


def rollout(place: Place, fault: Rollout) -> AbstractAsyncContextManager[None]:
    """All pods exchanged, one after the other; entered once the first new one is there, left when all are."""
    before: set[str] = set()

    async def act() -> Evidence:
        await place.members.look()
        before.update(each.uid for each in place.members.replicas.values())
        await place.hand.restart()

        def begun() -> bool:
            return any(each.uid not in before for each in place.members.replicas.values())

        await until(place, begun, "the first pod of the new template", within=BACK_SECONDS)
        return {"replaced": len(before)}

    async def heal() -> Evidence:
        if not before:
            return {}
        within = len(before) * (BACK_SECONDS + place.hand.release.grace_seconds)
        told = await whole(place, within=within)
        left = [each.name for each in place.members.replicas.values() if each.uid in before]
        if left:
            raise InjectionError(f"rollout: {', '.join(left)} still run, so the template was not replaced")
        return told

    return life(place, kind=fault.kind, target=fault.target, value={"call": "restart"}, act=act, heal=heal)


def scale(place: Place, fault: Scale) -> AbstractAsyncContextManager[None]:
    """Another number of replicas until the block is left; entered once it is reached."""
    original: list[int] = []

    async def act() -> Evidence:
        await place.members.look()
        number = place.members.wanted()
        wanted = number + fault.by
        if wanted < 1 or wanted == number:
            raise InjectionError(
                f"scale by {fault.by:+d}: {number} replicas run, and at least one other must"
            )
        original.append(number)
        await place.hand.scale(wanted)
        within = BACK_SECONDS + place.hand.release.grace_seconds
        await until(place, lambda: stands(place, wanted), f"{wanted} replicas", within=within)
        return {"from": number, "to": wanted}

    async def heal() -> Evidence:
        if not original:
            return {}
        await surely(lambda: place.hand.scale(original[0]))
        within = BACK_SECONDS + place.hand.release.grace_seconds
        await until(place, lambda: stands(place, original[0]), f"{original[0]} replicas again", within=within)
        return {"replicas": original[0]}

    return life(place, kind=fault.kind, target=fault.target, value={"by": fault.by}, act=act, heal=heal)


def cordon(place: Place, fault: Cordon) -> AbstractAsyncContextManager[None]:
    """Nothing new is put onto the node of a replica until the block is left; then the release becomes whole."""
    done: list[str] = []

    async def act() -> Evidence:
        await place.members.look()
        node = place.members.replicas[fault.target].node
        done.append(node)
        await place.hand.cordon(node)
        return {"node": node}

    async def heal() -> Evidence:
        taken_back = [await surely(functools.partial(place.hand.uncordon, node)) for node in done]
        return {"uncordoned": sum(taken_back), **(await whole(place) if any(taken_back) else {})}

    return life(place, kind=fault.kind, target=fault.target, value={"call": "cordon"}, act=act, heal=heal)


def cut_off(place: Place, fault: CutOff) -> AbstractAsyncContextManager[None]:
    """Nothing goes out of one replica until the block is left, by a NetworkPolicy that selects it alone.

    Proven by the others: they no longer know it as a member. Where they still do after `CUT_SECONDS`, the cluster
    enforces no policies, or another policy allows what this one does not: policies add up.
    """
    policy = f"picker-chaos-{secrets.token_hex(4)}"
    marked: list[str] = []

    async def act() -> Evidence:
        await place.hand.own_pod(fault.target)
        marked.append(fault.target)
        await place.hand.mark_pod(fault.target, policy)
        await place.hand.deny(policy, policy)
        others = [name for name in place.members.pages if name != fault.target]
        what = (
            f"{fault.target} is still a member for {' and '.join(others)} {CUT_SECONDS:g} s after the NetworkPolicy:"
            " this cluster enforces none, or another policy selects the same pod and allows more (networkPolicy.enabled"
            " of the chart)"
        )
        await asked(lambda: lost(place, fault.target, others), what)
        return {"policy": policy, "seen_by": others}

    async def heal() -> Evidence:
        told: dict[str, Any] = {"deleted": await surely(lambda: place.hand.undeny(policy))}
        if marked:
            told["unmarked"] = await surely(lambda: place.hand.unmark_pod(fault.target))
        if told["deleted"] and told.get("unmarked"):
            others = [name for name in place.members.pages if name != fault.target]
            what = f"{fault.target} is no member again for {' and '.join(others)}"
            await asked(lambda: regained(place, fault.target, others), what)
        return told

    return life(place, kind=fault.kind, target=fault.target, value={"policy": policy}, act=act, heal=heal)


DEEDS: Mapping[str, Deed] = {
    "kill": kill,
    "terminate": terminate,
    "evict": evict,
    "rollout": rollout,
    "scale": scale,
    "cordon": cordon,
    "cut-off": cut_off,
}
"""Kind of injection -> how it is done to a release."""


def calls_of(injection: Injection, place: Place) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """What an injection changes, and what its healing changes. Raises InjectionError for one that cannot be done."""
    release = place.hand.release
    match injection:
        case Kill(target):
            return (calls.deletion(target, grace=0),), ()
        case Terminate(target):
            return (calls.deletion(target, grace=None),), ()
        case Evict(target):
            return (calls.eviction(target),), ()
        case Rollout():
            return (calls.restarting(release),), ()
        case Scale(by):
            now = place.members.wanted()
            return (calls.scaling(release, now + by),), (calls.scaling(release, now),)
        case Cordon(target):
            node = place.members.replicas[target].node
            return (calls.cordoning(node),), (calls.uncordoning(node),)
        case CutOff(target):
            policy = "picker-chaos-*"
            done = (calls.marking(target, on=True), calls.denying(policy))
            return done, (calls.undenying(policy), calls.marking(target, on=False))
    raise InjectionError(
        f"{injection.kind} cannot be done to a release in Kubernetes; there are: {', '.join(DEEDS)}"
    )


def words(injection: Injection) -> str:
    """What an injection does to a release, in one line for people."""
    match injection:
        case Kill(target):
            return f"delete the pod {target} without grace, so that its process is killed; another one takes its place"
        case Terminate(target):
            return f"delete the pod {target}, which ends in good order; another one takes its place"
    return injection.describe()


def enter(injection: Injection, place: Place) -> AbstractAsyncContextManager[None]:
    """An injection, done to a release. Raises InjectionError for one that cannot be."""
    if injection.kind not in DEEDS:
        raise InjectionError(
            f"{injection.kind} cannot be done to a release in Kubernetes; there are: {', '.join(DEEDS)}"
        )
    return DEEDS[injection.kind](place, injection)
