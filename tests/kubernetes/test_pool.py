"""Engines of the pool come and go, the API server goes away and comes back; `helm test` says that all is well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.kubernetes.asking import Asking, until
from tests.kubernetes.cluster.trial import LABELS, Trial
from tests.kubernetes.load import Load

NOTICED_SECONDS = 5.0


async def known(trial: Trial, ask: Asking) -> list[set[str]]:
    """The workers that each replica knows."""
    pages = [await ask.status(address) for address in trial.release.replicas().values()]
    return [{each["name"].partition("#")[0] for each in page["workers"]} for page in pages]


@pytest.fixture
def relabelled(installed: Trial) -> Iterator[tuple[str, str]]:
    """Name and address of an engine whose labels a test may change; they are put right afterwards."""
    name, address = min(installed.engines.addresses().items())
    yield name, address
    label(installed, name, LABELS["app"])


def label(trial: Trial, pod: str, value: str) -> None:
    trial.release.running.kubectl(
        "-n", trial.release.namespace, "label", "pod", pod, f"app={value}", "--overwrite"
    )


async def test_an_engine_that_loses_its_label_leaves_the_pool_and_cuts_nothing(
    installed: Trial, gateway: str, ask: Asking, relabelled: tuple[str, str]
) -> None:
    name, address = relabelled
    everybody = set(installed.engines.addresses().values())
    load = Load(gateway, long_seconds=10, long_count=8)

    async def change() -> None:
        await until(busy, seconds=20, what=f"{name} answers a long request")
        label(installed, name, "another")
        await until(left, seconds=NOTICED_SECONDS, what=f"{name} has left every replica's pool")
        asked = await ask.answers(gateway, 40)
        assert name not in asked
        label(installed, name, LABELS["app"])
        await until(back, seconds=NOTICED_SECONDS, what=f"{name} is back")

    async def busy() -> bool:
        async with ask.session.get(f"http://{address}/debug/load") as response:
            return bool((await response.json())["requests"])

    async def left() -> bool:
        return all(each == everybody - {address} for each in await known(installed, ask))

    async def back() -> bool:
        return all(each == everybody for each in await known(installed, ask))

    await load.during(change)
    assert not load.lost()


async def test_while_the_api_server_is_away_requests_are_answered_and_afterwards_new_engines_found(
    installed: Trial, gateway: str, ask: Asking
) -> None:
    running = installed.release.running
    load = Load(gateway)
    before = set(installed.engines.addresses().values())

    async def restart() -> None:
        await asyncio.to_thread(running.restart, "kube-apiserver")
        await asyncio.to_thread(installed.engines.start, len(before) + 1)
        await until(found, seconds=30, what="the new engine is known to every replica")

    async def found() -> bool:
        workers = set(installed.engines.addresses().values())
        return len(workers) == len(before) + 1 and all(
            each == workers for each in await known(installed, ask)
        )

    await load.during(restart)
    assert not load.lost()
    await asyncio.to_thread(installed.engines.start, len(before))

    async def shrunk() -> bool:
        workers = set(installed.engines.addresses().values())
        return len(workers) == len(before) and all(each == workers for each in await known(installed, ask))

    await until(shrunk, seconds=30, what="the engine that left is known by nobody")


def test_helm_test_passes(installed: Trial) -> None:
    assert "Phase:          Succeeded" in installed.release.test()
