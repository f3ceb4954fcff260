"""Mutants of views: what a replica believes while the plane is away, or when it has to read anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from chaos.mutants.planting import exchange
from stateplane.booking import NOTHING
from stateplane.link import Link
from stateplane.view import View


def _empty(view: View) -> None:
    """All layers, as if nothing had ever been said."""
    for id_ in tuple(view.bookings()):
        view._own.pop(id_, None)  # noqa: SLF001 - a mutant breaks what is inside
        view.discard(id_, time.monotonic())


def zero_when_away() -> None:
    """While the plane does not answer, a view says that nothing is booked anywhere."""
    away: set[int] = set()

    def make_gate(rightly: Any) -> Any:
        def wrongly(self: Link) -> None:
            rightly(self)
            (away.add if self.away else away.discard)(id(self._view))

        return wrongly

    def empty(nothing: Any) -> Callable[[Any], Any]:
        def make(rightly: Any) -> Any:
            def wrongly(self: View, *args: Any) -> Any:
                return nothing if id(self) in away else rightly(self, *args)

            return wrongly

        return make

    exchange(Link, "_gate", make_gate)
    for name, nothing in (("load", NOTHING), ("loads", {}), ("bookings", {}), ("on", ())):
        exchange(View, name, empty(nothing))


def resync_clears() -> None:
    """A view that has to be read anew is emptied first."""

    def make(rightly: Any) -> Any:
        async def wrongly(self: Link) -> Any:
            _empty(self._view)
            return await rightly(self)

        return wrongly

    exchange(Link, "_join", make)
    exchange(Link, "_resync", make)
