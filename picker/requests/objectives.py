"""The priorities that InferenceObjectives give to requests which name them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from discovery.kubernetes.objectives import Objective, priorities
from discovery.source import ObjectSource


class Objectives:
    """
    Priorities by the objective's name.

    Args:
        source: The objects; None: there are none.
        pool: Name of the pool: objects that name another one are left out.

    """

    def __init__(self, source: ObjectSource[Objective] | None = None, *, pool: str = "") -> None:
        self.source = source
        self._pool = pool
        self._number = -1
        self._priorities: Mapping[str, int] = {}

    def priority(self, name: str) -> int | None:
        """The priority of an objective, higher goes first; None: no objective of this name is known."""
        if not name or self.source is None:
            return None
        if self._number != self.source.number:
            self._number = self.source.number
            self._priorities = priorities(self.source.objects, self._pool)
        return self._priorities.get(name)

    async def run(self) -> None:
        """Keep them. Never returns."""
        if self.source is not None:
            await self.source.run()
        await asyncio.Event().wait()

    def status(self) -> Mapping[str, Any] | None:
        """For ``/status.json``; None: they are not read."""
        return None if self.source is None else self.source.status()
