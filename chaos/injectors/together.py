"""Several faults at the same moment: brought about side by side, healed side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from chaos.injectors import Injection, Running


@dataclass(frozen=True, slots=True)
class Together:
    """All of them at once; each tells of itself in the history."""

    parts: tuple[Injection, ...]
    kind: str = field(default="together", init=False)

    @property
    def target(self) -> str:
        """All their targets."""
        return ", ".join(each.target for each in self.parts)

    def describe(self) -> str:
        """One line for people."""
        return "at once: " + "; ".join(each.describe() for each in self.parts)

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered when all are in effect, left when all are healed; the first failure is raised, the rest healed."""
        return _together([each.into(running) for each in self.parts])


@asynccontextmanager
async def _together(parts: list[AbstractAsyncContextManager[None]]) -> AsyncIterator[None]:
    begun = await asyncio.gather(*(each.__aenter__() for each in parts), return_exceptions=True)
    entered = [each for each, failure in zip(parts, begun, strict=True) if failure is None]
    healed: list[BaseException | bool | None] = []
    try:
        _raise_first(begun)
        yield
    finally:
        leaving = asyncio.gather(
            *(each.__aexit__(None, None, None) for each in entered), return_exceptions=True
        )
        healed = await asyncio.shield(leaving)
    _raise_first(healed)


def _raise_first(outcomes: list[BaseException | bool | None] | list[BaseException | None]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def together(*parts: Injection) -> Together:
    """All of these at once: ``together(kill("picker-0"), kill("picker-1"))``."""
    return Together(parts)
