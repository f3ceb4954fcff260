"""How faults of a release are proven, and how long each proof may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from chaos.injectors import InjectionError
from chaos.injectors.life import Evidence, Teller
from chaos.targets.kube.hand import Hand
from chaos.targets.kube.members import LOOK_SECONDS, Members
from discovery.kubernetes.api import ApiError

T = TypeVar("T")
BACK_SECONDS = 120.0
"""How long a replacement may take until it is ready: a node may have to be found, an image to be pulled."""
AGAIN_SECONDS = 1.0
"""Between two tries of what an API server forbids at the moment."""
CUT_SECONDS = 20.0
"""How long a policy may take to be seen to act: a lease must fall."""
HEAL_SECONDS = 120.0
"""How long it is tried to undo something."""
WORTH_A_RETRY = frozenset({0, 409, 429, 500, 502, 503, 504})
"""Statuses of an API server that may say otherwise in a moment; 0: it did not answer."""


class Place(Teller, Protocol):
    """What faults need of the target that they happen on; `chaos.targets.kube.target.Kube` is one."""

    @property
    def hand(self) -> Hand:
        """Changes objects."""
        ...

    @property
    def members(self) -> Members:
        """The replicas as they are."""
        ...

    async def answers(self, replica: str, address: str) -> bool:
        """Whether that replica still answers there."""
        ...

    async def members_of(self, replica: str) -> frozenset[str] | None:
        """Whom a replica knows as members of the plane; None: it does not say."""
        ...


async def surely(work: Callable[[], Awaitable[T]]) -> T:
    """Undo something, through an API server that is away, restarts, or is asked for too much at the moment."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + HEAL_SECONDS
    while True:
        try:
            return await work()
        except ApiError as error:
            if error.status not in WORTH_A_RETRY or loop.time() > deadline:
                raise
        await asyncio.sleep(AGAIN_SECONDS)


def gone(place: Place, uid: str) -> bool:
    """Whether that pod is there no more."""
    return all(each.uid != uid for each in place.members.replicas.values())


def stands(place: Place, wanted: int) -> bool:
    """Whether the release is whole with that many replicas."""
    return place.members.whole and place.members.wanted() == wanted


async def whole(place: Place, *, within: float = 0.0) -> Evidence:
    """Wait until as many replicas run as are wanted, all ready, none ending any more."""
    begun = asyncio.get_running_loop().time()
    limit = within or BACK_SECONDS + place.hand.release.grace_seconds
    await until(place, lambda: place.members.whole, "as many ready replicas as are wanted", within=limit)
    return {
        "replicas": sorted(place.members.replicas),
        "seconds": round(asyncio.get_running_loop().time() - begun, 1),
    }


async def until(place: Place, true: Callable[[], bool], what: str, *, within: float) -> None:
    """Look at the release until something is true of it; an API server that is away meanwhile is waited for."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        with suppress(ApiError):
            await place.members.look()
            if true():
                return
        if loop.time() > deadline:
            last = f" (last: {place.members.fault})" if place.members.fault else ""
            raise InjectionError(f"{what}: not within {within:g} s{last}")
        await asyncio.sleep(LOOK_SECONDS)


async def unanswered(place: Place, replica: str, address: str) -> None:
    """The object is gone; so must be the process, which the node ends a moment later."""

    async def silent() -> bool:
        return not address or not await place.answers(replica, address)

    await asked(silent, f"{replica} still answers {CUT_SECONDS:g} s after its pod was deleted without grace")


async def asked(look: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask until the answer is yes. Raises InjectionError with ``what``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CUT_SECONDS
    while not await look():
        if loop.time() > deadline:
            raise InjectionError(what)
        await asyncio.sleep(LOOK_SECONDS)


async def lost(place: Place, replica: str, others: list[str]) -> bool:
    """Whether all the others say that a replica is no member."""
    told = [await place.members_of(other) for other in others]
    return bool(told) and all(known is not None and replica not in known for known in told)


async def regained(place: Place, replica: str, others: list[str]) -> bool:
    """Whether all the others that say something say that it is one."""
    told = [await place.members_of(other) for other in others]
    return all(known is None or replica in known for known in told)
