"""Replicas come and go under load, in every way that Kubernetes has: nothing is lost, nothing cut, peers stay right."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

from tests.kubernetes.asking import Asking, until
from tests.kubernetes.cluster.api import Api, Mirror, Object
from tests.kubernetes.cluster.services import SERVICE_LABEL
from tests.kubernetes.cluster.trial import Trial, values
from tests.kubernetes.load import Load

DRAIN_SECONDS = 15
"""Of a replica, by default."""
PEERS_SECONDS = 5.0
"""The TTL of their names."""


Addresses = frozenset[str]


class Peers:
    """Watches how old the peers are that each replica shows: how long ago the EndpointSlices said the same."""

    def __init__(self, trial: Trial, ask: Asking, api: Api) -> None:
        self.oldest = 0.0
        """Seconds."""
        self.looks = 0
        release = trial.release
        label = f"{SERVICE_LABEL}={release.objects}-peers"
        path = (
            f"/apis/discovery.k8s.io/v1/namespaces/{release.namespace}/endpointslices?labelSelector={label}"
        )
        self._ask = ask
        self._slices = Mirror(api, path, self._changed)
        self._replaced: dict[Addresses, float] = {}
        """When the slices ceased to say so; what is not here they may have said before."""
        self._begun = time.monotonic()
        self._now: Addresses = frozenset()
        self._staying: list[str] = []
        """One that ends is not asked: it may be gone before it answers."""

    def _changed(self, event: str, item: Object) -> None:
        found = [each for one in self._slices.objects.values() for each in one["endpoints"] or ()]
        said = frozenset(address for each in found for address in each["addresses"])
        self._staying = [each["addresses"][0] for each in found if not each["conditions"].get("terminating")]
        if said != self._now:
            self._replaced[self._now] = time.monotonic()
            self._now = said

    async def watch(self) -> None:
        """Look again and again until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._slices.run())
            while True:
                await asyncio.gather(*(self._look(address) for address in self._staying))
                await asyncio.sleep(0.25)

    async def _look(self, address: str) -> None:
        asked = time.monotonic()
        try:
            page = await self._ask.status(address)
        except (aiohttp.ClientConnectionError, TimeoutError):
            return
        self.looks += 1
        shown = frozenset(peer.rpartition(":")[0] for peer in page["peers"])
        if shown != self._now:
            # one that starts knows nobody yet
            lived = time.time() - page["replica"]["started_at"]
            self.oldest = max(self.oldest, min(lived, asked - self._replaced.get(shown, self._begun)))


@asynccontextmanager
async def peers_watched(trial: Trial, ask: Asking) -> AsyncIterator[Peers]:
    """The peers of a trial, watched until the block is left; what a replica shows is 5 s old at most."""
    running = trial.release.running.page
    async with Api(running["server"], running["token"]) as api:
        peers = Peers(trial, ask, api)
        watching = asyncio.create_task(peers.watch())
        try:
            yield peers
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    assert peers.looks, "nobody was asked"
    assert peers.oldest < PEERS_SECONDS, f"peers were those of the slices {peers.oldest:.1f} s before"


async def three_again(trial: Trial) -> None:
    """Wait until exactly three replicas are there, all ready, and none that ends."""
    trial.release.scale(3)
    trial.release.settled()

    async def three() -> bool:
        return len(trial.release.replicas()) == len(trial.release.replicas(ready=False)) == 3

    await until(three, seconds=60, what="three replicas and no other")


async def test_a_rolling_upgrade_loses_and_cuts_nothing(installed: Trial, gateway: str, ask: Asking) -> None:
    release = installed.release
    before = set(release.replicas())
    load = Load(gateway, long_seconds=3 * DRAIN_SECONDS)

    async def upgrade() -> None:
        changed = {**values(), "podAnnotations": {"upgraded": str(time.time())}}
        await asyncio.to_thread(release.upgrade, changed)
        # the old ones serve on until the gateway has learned of it
        await asyncio.sleep(DRAIN_SECONDS)

    async with peers_watched(installed, ask):
        await load.during(upgrade)
    after = release.replicas()
    assert not load.lost()
    assert not before & set(after)
    assert all((await ask.picks(after)).values())
    assert sum(each.wanted_tokens == 900 for each in load.records) == load.long_count


async def test_scaling_up_and_down_loses_and_cuts_nothing(
    installed: Trial, gateway: str, ask: Asking
) -> None:
    release = installed.release
    load = Load(gateway)

    async def scale() -> None:
        for count in (5, 2):
            release.scale(count)
            await asyncio.to_thread(release.settled)
            if count == 5:
                await until(all_asked, seconds=30, what="all five are asked")
        await asyncio.sleep(DRAIN_SECONDS)

    async def all_asked() -> bool:
        picks = await ask.picks(release.replicas())
        return len(picks) == 5 and all(picks.values())

    async with peers_watched(installed, ask):
        await load.during(scale)
    assert not load.lost()
    await three_again(installed)


async def test_a_deleted_replica_is_replaced_and_nothing_lost(
    installed: Trial, gateway: str, ask: Asking
) -> None:
    release = installed.release
    victim = min(release.replicas())
    load = Load(gateway)

    async def delete() -> None:
        await asyncio.to_thread(
            release.running.kubectl, "-n", release.namespace, "delete", "pod", victim, "--wait=true"
        )

    async with peers_watched(installed, ask):
        await load.during(delete)
    assert not load.lost()
    await three_again(installed)
    assert victim not in release.replicas()


async def test_a_killed_replica_costs_its_picks_in_progress_only(
    installed: Trial, gateway: str, ask: Asking
) -> None:
    release = installed.release
    victim = min(release.replicas())
    load = Load(gateway, long_seconds=10, long_count=5)

    async def kill() -> None:
        os.kill(release.running.container(release.namespace, victim, "picker"), signal.SIGKILL)
        await until(back, seconds=60, what="the container is started again and ready")

    async def back() -> bool:
        pod = release.running.get("pod", victim, "-n", release.namespace)
        (status,) = pod["status"]["containerStatuses"]
        return bool(status["ready"] and status["restartCount"] == 1)

    async with peers_watched(installed, ask):
        await load.during(kill)
    cut = [each for each in load.records if each.cut]
    assert not cut
    # a gateway's retry may itself meet a replica that is just gone
    assert len(load.lost()) <= 3, load.lost()
