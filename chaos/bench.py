"""The stage of the self-test: one cluster after the other, whose replicas are exchanged for mutants and back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import aiohttp

from chaos.mutants import environment
from chaos.quiet import is_quiet
from chaos.result import Result
from chaos.story import Story
from chaos.targets.local import Local, given_up, started
from chaos.topology import Topology
from picker.sim.model import MODEL
from picker.sim.processes import ProcessError

QUIET_SECONDS = 30.0
ENOUGH_SERVED = 15
"""So many requests in a row, over more than a second: the gateway asks replicas for their health once a second."""


class Bench:
    """A `chaos.result.Stage`. ``mutant`` says which replicas the next run is played with; empty: as they are."""

    soak_seconds = 0.0

    def __init__(self, *, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.mutant = ""
        self._root = folder
        self._local: Local | None = None
        self._mutated = ""
        self._used = False
        self._clusters = 0

    def takes(self, mutant: str, *, run: str) -> None:
        """The next run is played with these replicas; its files go into a folder of that name."""
        self.mutant = mutant
        self.folder = self._root / run

    async def cluster(self, topology: Topology) -> Local:
        """A whole cluster of that topology with the replicas that are wanted, and nothing left of the run before."""
        if self._local is not None and not await self._as_wanted(self._local, topology):
            await self.end()
        if self._local is None:
            self._local = await started(lambda: self._new(topology))
            self._mutated, self._used = self.mutant, False
        await _until_served(self._local)
        await _until_quiet(self._local)
        return self._local

    async def _as_wanted(self, local: Local, topology: Topology) -> bool:
        """Make the cluster what is wanted; False: it takes another one."""
        if local.topology != topology:
            return False
        try:
            if self._used or self._mutated != self.mutant:
                await local.replace_replicas(self._mutation())
            else:
                await local.make_whole()
        except (ProcessError, OSError, TimeoutError, aiohttp.ClientError) as error:
            # on a shared machine somebody else may have taken a port meanwhile
            given_up(local, f"it cannot be made what is wanted: {type(error).__name__}: {error}")
            return False
        self._mutated, self._used = self.mutant, False
        return True

    def _new(self, topology: Topology) -> Local:
        self._clusters += 1
        folder = self._root / "clusters" / f"{self._clusters:02d}-{topology.plane}-{topology.key}"
        return Local(topology, folder=folder, mutation=self._mutation())

    def _mutation(self) -> dict[str, str]:
        return dict(environment(self.mutant, self._root)) if self.mutant else {}

    async def discard(self) -> None:
        """What the run left may be anything: the replicas are not to be used again."""
        self._used = True

    async def end(self) -> None:
        """End the cluster."""
        local, self._local = self._local, None
        if local is not None:
            await local.stop()

    def twin(self, _key: str) -> Story | None:
        """None: scenarios with twins are not played here."""
        return None

    def keep_twin(self, key: str, story: Story) -> None:
        """Nothing is compared."""

    def done(self, result: Result) -> None:
        """Whoever performs a run has its result."""


async def _until_served(local: Local) -> None:
    """The gateway may yet have to find out that the replicas were away, and are there again."""
    body = {"model": MODEL, "prompt": "harbor", "max_tokens": 1}
    deadline, served = time.monotonic() + QUIET_SECONDS, 0
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as http:
        while time.monotonic() < deadline and served < ENOUGH_SERVED:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with http.post(f"{local.gateway}/v1/completions", json=body) as response:
                    served = served + 1 if response.status == 200 else 0
            await asyncio.sleep(0.1)


async def _until_quiet(local: Local) -> None:
    """A mutant may never be: then the run begins all the same, and its checks say what they find."""
    deadline = time.monotonic() + QUIET_SECONDS
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < deadline and not await is_quiet(local, http):
            pass
