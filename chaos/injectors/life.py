"""One life of a fault: told, brought about, proven, undone, proven again; whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from chaos.injectors import Fault, InjectionError, Phase
from discovery.kubernetes.api import ApiError
from picker.sim.processes import ProcessError

T = TypeVar("T")
Evidence = Mapping[str, Any]
Deed = Callable[[], Coroutine[Any, Any, Evidence]]
LOOK_SECONDS = 0.02
PROOF_SECONDS = 15.0
"""How long a fault may take to be seen; parts of a cluster speak to each other at least every few seconds."""


class Teller(Protocol):
    """What a life needs of the place where it happens; every `chaos.injectors.Running` is one."""

    def fault_id(self, kind: str, target: str) -> str:
        """A fresh id for one life of a fault."""
        ...

    def tell(self, fault: Fault) -> None:
        """Write one phase of a fault into the history."""
        ...


@asynccontextmanager
async def life(
    running: Teller, *, kind: str, target: str, value: Evidence, act: Deed, heal: Deed
) -> AsyncIterator[None]:
    """Enter: ``act``, which returns the proof of its effect. Leave: ``heal``, which returns the proof of its end.

    ``heal`` also follows an ``act`` that failed or was cancelled halfway, so it must bear that nothing was done; it
    runs to its end even when the task is cancelled meanwhile.

    Raises InjectionError when either fails, with the fault and its target in the text.
    """
    name = running.fault_id(kind, target)

    def tell(phase: Phase, said: Evidence) -> None:
        running.tell(Fault(name, kind, target, phase, dict(said)))

    try:
        tell("begin", value)
        tell("seen", await _explained(act, f"{kind} of {target} did not come about"))
        yield
    finally:
        tell("healing", {})
        tell("healed", await to_the_end(_explained(heal, f"{kind} of {target} is not healed")))


async def _explained(deed: Deed, what: str) -> Evidence:
    try:
        return await deed()
    except InjectionError:
        raise
    except (OSError, ProcessError, ApiError, KeyError, ValueError, TimeoutError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise InjectionError(f"{what}: {text}") from error


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do ``work`` to its end; a cancellation meanwhile is raised after it."""
    doing = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        doing.exception()
        raise cancelled
    return doing.result()


async def seen(look: Callable[[], bool], *, what: str, within: float = PROOF_SECONDS) -> None:
    """Wait until ``look()`` is true. Raises InjectionError: ``what`` was not seen."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within
    while not look():
        if loop.time() > until:
            raise InjectionError(f"{what}: not within {within:g} s")
        await asyncio.sleep(LOOK_SECONDS)


async def asked(look: Callable[[], Awaitable[bool]], *, what: str, within: float = PROOF_SECONDS) -> None:
    """Wait until ``look()`` says yes; it may fail with OSError meanwhile. Raises InjectionError."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within
    last = ""
    while True:
        try:
            async with asyncio.timeout_at(until):
                if await look():
                    return
        except (OSError, TimeoutError) as error:
            last = f" (last: {error or type(error).__name__})"
        if loop.time() > until:
            raise InjectionError(f"{what}: not within {within:g} s{last}")
        await asyncio.sleep(LOOK_SECONDS)
