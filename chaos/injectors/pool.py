"""Faults of the pool itself: a worker is taken off the list that replicas watch, while it may still work."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, life


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker leaves the pool; its process goes on."""

    target: str
    kind: str = field(default="leave", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"take {self.target} off the list of workers, then put it back"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Gone from the list until the block is left."""
        workers = running.cluster.workers
        address = next((each.address for each in workers if each.name == self.target), None)
        if address is None:
            raise InjectionError(
                f"{self.target} is none of the workers {', '.join(each.name for each in workers)}"
            )
        file = running.cluster.workers_file

        def listed() -> list[str]:
            return [each["address"] for each in json.loads(file.read_text())["workers"]]

        async def act() -> Evidence:
            running.cluster.set_workers([each for each in listed() if each != address])
            return {"listed": len(listed())}

        async def heal() -> Evidence:
            now = listed()
            running.cluster.set_workers(now if address in now else [*now, address])
            return {"listed": len(listed())}

        return life(
            running, kind=self.kind, target=self.target, value={"address": address}, act=act, heal=heal
        )


def leave(target: str) -> Leave:
    """A worker leaves the pool while its engine works on; healed by its return."""
    return Leave(target)
