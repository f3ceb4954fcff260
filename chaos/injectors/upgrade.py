"""A replica is replaced by one of the next version, as a rolling upgrade does it.

What a version changes for its neighbours in the pool is the number of the newest schema that it reads. So the next
version is this one, with that number raised by one in its process before anything else of it is loaded; it then reads
what this version writes, and must go on writing that until every member of the pool is of the next version too. Which
code would stand beside which does not matter to that promise, and any real previous version would prove it for itself
alone.
"""

from __future__ import annotations

import os
import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, life, seen
from chaos.injectors.process import END_SECONDS
from picker.sim.processes import lives
from stateplane.booking import SCHEMA

NEXT = SCHEMA + 1
VARIABLE = "CHAOS_NEWEST_SCHEMA"
_SITE = f"""\
import os

if os.environ.get({VARIABLE!r}):
    import stateplane.booking

    stateplane.booking.SCHEMA = int(os.environ[{VARIABLE!r}])
"""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """SIGTERM, and a start as the next version; it stays so."""

    target: str
    kind: str = field(default="upgrade", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"end {self.target} in good order and start the next version (schema {NEXT}) in its place, for good"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered when the next version is ready; nothing is left to heal."""

        async def act() -> Evidence:
            name = running.resolve(self.target)
            child = running.cluster.children[name]
            if VARIABLE in child.program.environment:
                raise InjectionError(f"{self.target} is of the next version already")
            before = child.pid
            await running.cluster.kill(name, signal.SIGTERM)
            await seen(lambda: not lives(before), what=f"the end of {self.target}", within=END_SECONDS)
            more = environment(running.folder, child.program.environment.get("PYTHONPATH", ""))
            child.program = replace(child.program, environment={**child.program.environment, **more})
            await running.cluster.restart(name)
            return {"pid_before": before, "pid": child.pid, "schema": NEXT}

        async def heal() -> Evidence:
            name = running.resolve(self.target)
            child = running.cluster.children[name]
            if not child.alive:
                await running.cluster.restart(name)
            return {"pid": child.pid}

        return life(running, kind=self.kind, target=self.target, value={"schema": NEXT}, act=act, heal=heal)


def environment(folder: Path, path: str = "") -> dict[str, str]:
    """What makes a replica one of the next version; writes the plug-in for it into ``folder``."""
    place = folder / "next-version"
    place.mkdir(parents=True, exist_ok=True)
    (place / "sitecustomize.py").write_text(_SITE)
    before = path or os.environ.get("PYTHONPATH", "")
    return {VARIABLE: str(NEXT), "PYTHONPATH": os.pathsep.join([str(place), *([before] if before else [])])}


def upgrade(target: str) -> Upgrade:
    """Replace a replica by one of the next version."""
    return Upgrade(target)
