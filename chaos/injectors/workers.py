"""Workers that leave the pool and join it again: the file that replicas watch is written anew; the engines run on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import aiohttp
import orjson

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, asked, life
from chaos.injectors.process import STOPPED, states

KNOWN_SECONDS = 20.0
"""How long replicas may take to know of it."""
_TIMEOUT = aiohttp.ClientTimeout(total=3)


@dataclass(frozen=True, slots=True)
class Leave:
    """One worker is not in the pool until the block is left."""

    target: str
    kind: str = field(default="leave", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"take {self.target} out of the pool (its engine runs on), then put it back"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once every living replica has dropped the worker; left once every one has it again."""

        async def act() -> Evidence:
            address = _address(running, self.target)
            listed = listed_workers(running)
            if address not in listed:
                raise InjectionError(f"{self.target} is not in the pool, so it cannot leave")
            if listed == [address]:
                raise InjectionError(f"{self.target} is the pool's last worker")
            running.cluster.set_workers([each for each in listed if each != address])
            await _until_known(running, address, there=False)
            return {"address": address, "left": len(listed) - 1}

        async def heal() -> Evidence:
            address = _address(running, self.target)
            listed = listed_workers(running)
            if address not in listed:
                order = [worker.address for worker in running.cluster.workers]
                running.cluster.set_workers([each for each in order if each in (*listed, address)])
            await _until_known(running, address, there=True)
            return {"address": address, "workers": len(listed_workers(running))}

        return life(running, kind=self.kind, target=self.target, value={}, act=act, heal=heal)


def leave(target: str) -> Leave:
    """``engine-0`` leaves the pool while its engine works on; it joins again with the heal."""
    return Leave(target)


def listed_workers(running: Running) -> list[str]:
    """The addresses that the file of workers has now."""
    page = orjson.loads(running.cluster.workers_file.read_bytes())
    return [str(each["address"]) for each in page["workers"]]


def _address(running: Running, target: str) -> str:
    for worker in running.cluster.workers:
        if worker.name == target:
            return worker.address
    known = ", ".join(worker.name for worker in running.cluster.workers)
    raise InjectionError(f"{target!r} is no worker of the topology; there are: {known}")


async def _until_known(running: Running, address: str, *, there: bool) -> None:
    async def known() -> bool:
        return all((address in names) == there for names in await _known_workers(running))

    what = f"every replica {'with' if there else 'without'} the worker {address}"
    await asked(known, what=what, within=KNOWN_SECONDS)


async def _known_workers(running: Running) -> Sequence[frozenset[str]]:
    """What each living replica that is not stopped says of its workers."""
    cluster, found = running.cluster, []
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        for replica in cluster.living_replicas():
            if STOPPED in states(cluster.children[replica.name].pid):
                continue
            try:
                async with session.get(f"http://{replica.admin}/status.json") as response:
                    page = orjson.loads(await response.read())
            except aiohttp.ClientError as error:
                raise OSError(f"{replica.name}: {error}") from error
            found.append(frozenset(str(each["name"]) for each in page["workers"]))
    return found
