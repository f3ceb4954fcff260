"""Faults of processes: ended, stopped or started again; only children of the running cluster, each by its own id."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Deed, Evidence, life, seen
from chaos.injectors.servers import forget_kept, keep
from picker.sim.processes import lives

END_SECONDS = 60.0
"""How long a process may take to end after SIGTERM; a replica drains for some seconds."""
STOPPED = "T"
"""State of a thread after SIGSTOP."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL."""

    target: str
    back: bool = True
    kind: str = field(default="kill", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"kill the process of {self.target} (SIGKILL), " + _then(self.back)

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Dead from the entering on; back and ready when left."""

        async def act() -> Evidence:
            name, pid = running.resolve(self.target), _living(running, self.target)
            await running.cluster.kill(name, signal.SIGKILL)
            await seen(lambda: not lives(pid), what=f"the end of {self.target}, process {pid}")
            return {"pid": pid}

        value = {"signal": "SIGKILL", "back": self.back}
        return _ended(running, self.kind, self.target, value, act, back=self.back)


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM, and the graceful end that follows."""

    target: str
    back: bool = True
    kind: str = field(default="terminate", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"end the process of {self.target} in good order (SIGTERM), " + _then(self.back)

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once it has ended by itself; back and ready when left."""

        async def act() -> Evidence:
            name, pid = running.resolve(self.target), _living(running, self.target)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await running.cluster.kill(name, signal.SIGTERM)
            await seen(
                lambda: not lives(pid), what=f"the end of {self.target} after SIGTERM", within=END_SECONDS
            )
            child = running.cluster.children[name]
            await seen(lambda: not child.alive, what=f"the exit code of {self.target}")
            code = child.process.returncode if child.process else None
            return {"pid": pid, "exit_code": code, "seconds": round(loop.time() - begun, 3)}

        value = {"signal": "SIGTERM", "back": self.back}
        return _ended(running, self.kind, self.target, value, act, back=self.back)


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP: the process keeps its sockets and says nothing any more."""

    target: str
    kind: str = field(default="freeze", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"stop the process of {self.target} (SIGSTOP), then let it go on (SIGCONT)"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Every thread of it is stopped until the block is left."""
        frozen: list[int] = []

        async def act() -> Evidence:
            pid = _living(running, self.target)
            frozen.append(pid)
            os.kill(pid, signal.SIGSTOP)
            await seen(lambda: set(states(pid)) == {STOPPED}, what=f"every thread of {self.target} stopped")
            return {"pid": pid, "threads": len(states(pid)), "state": STOPPED}

        async def heal() -> Evidence:
            if not frozen:
                return {}
            pid = frozen[0]
            if _ours(running, self.target) != pid or not lives(pid):
                return {"pid": pid, "gone": True}  # ended meanwhile by somebody else's fault
            os.kill(pid, signal.SIGCONT)
            await seen(lambda: STOPPED not in states(pid), what=f"{self.target} going on")
            return {"pid": pid}

        return life(
            running, kind=self.kind, target=self.target, value={"signal": "SIGSTOP"}, act=act, heal=heal
        )


@dataclass(frozen=True, slots=True)
class Restart:
    """SIGKILL and a new start on the same ports, within the entering: nothing is left to heal."""

    target: str
    kept: bool = False
    kind: str = field(default="restart", init=False)

    def describe(self) -> str:
        """One line for people."""
        data = ", its data kept" if self.kept else ""
        return f"kill the process of {self.target} (SIGKILL) and start it again at once{data}"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Ready again when entered."""

        async def act() -> Evidence:
            name, before = running.resolve(self.target), _living(running, self.target)
            if self.kept:
                await keep(running.cluster, name)
            else:
                forget_kept(running.cluster, name)
            await running.cluster.kill(name, signal.SIGKILL)
            await seen(lambda: not lives(before), what=f"the end of {self.target}")
            child = await running.cluster.children.restart(name)
            return {"pid_before": before, "pid": child.pid}

        async def heal() -> Evidence:
            name = running.resolve(self.target)
            if not running.cluster.children[name].alive:
                await running.cluster.restart(name)
            forget_kept(running.cluster, name)
            return {"pid": running.pid(self.target)}

        value = {"signal": "SIGKILL", "kept": self.kept}
        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)


def kill(target: str, *, back: bool = True) -> Kill:
    """SIGKILL; healed by a new start on the same ports, or with ``back=False`` not at all."""
    return Kill(target, back)


def terminate(target: str, *, back: bool = True) -> Terminate:
    """SIGTERM and its graceful end, both within the entering; healed by a new start."""
    return Terminate(target, back)


def freeze(target: str) -> Freeze:
    """SIGSTOP, healed by SIGCONT."""
    return Freeze(target)


def restart(target: str, *, kept: bool = False) -> Restart:
    """SIGKILL and start again at once. What a plane held is lost; ``kept`` has Valkey save it before."""
    return Restart(target, kept)


def states(pid: int) -> list[str]:
    """The state letter of every thread of a process; empty once it is gone."""
    tasks = Path(f"/proc/{pid}/task")
    found = []
    for task in sorted(tasks.iterdir()) if tasks.exists() else ():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end between two looks
            found.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return found


def _ended(
    running: Running, kind: str, target: str, value: Evidence, act: Deed, *, back: bool
) -> AbstractAsyncContextManager[None]:
    async def heal() -> Evidence:
        name = running.resolve(target)
        child = running.cluster.children[name]
        if back and not child.alive:
            await running.cluster.restart(name)
        return {"pid": child.pid, "alive": child.alive}

    return life(running, kind=kind, target=target, value=value, act=act, heal=heal)


def _then(back: bool) -> str:
    return "then start it again" if back else "and leave it dead"


def _living(running: Running, target: str) -> int:
    """Process id of a child that runs. Raises InjectionError."""
    pid = _ours(running, target)
    if pid is None or not lives(pid):
        raise InjectionError(f"{target} does not run, so nothing can be done to it")
    return pid


def _ours(running: Running, target: str) -> int | None:
    """Process id of the present life, told by the cluster alone."""
    child = running.cluster.children[running.resolve(target)]
    return child.pid if child.alive else None
