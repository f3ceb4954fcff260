"""When a replica is ready, and what it does without. Pure: times are passed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a replica waits for before it is ready."""

    name: str
    met: Callable[[], bool]
    hint: str
    """What it means to go on without it."""


class Readiness:
    """Ready once every need was met, or when the warm-up is over; never again unready but by shutting down.

    A need that fails later does not unready the replica: it is shown as degraded.
    """

    def __init__(self, needs: Sequence[Need], *, warmup: float, begun: float) -> None:
        self._needs = needs
        self._deadline = begun + warmup
        self._ready = False
        self._stopping = False
        self._early = False

    @property
    def ready(self) -> bool:
        """Whether new requests are welcome."""
        return self._ready and not self._stopping

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Needs that are not met now."""
        return tuple(need.name for need in self._needs if not need.met())

    @property
    def degraded(self) -> tuple[str, ...]:
        """What a ready replica does without now, in words."""
        unmet = (f"{need.name}: {need.hint}" for need in self._needs if not need.met())
        return tuple(unmet) if self._ready else ()

    def look(self, now: float) -> bool:
        """Look again; True when the replica has just become ready."""
        if self._ready or self._stopping:
            return False
        waiting = self.waiting_for
        if waiting and now < self._deadline:
            return False
        self._ready = True
        self._early = bool(waiting)
        return True

    def stop(self) -> None:
        """Shutting down: not ready from here on."""
        self._stopping = True

    def shown(self) -> Mapping[str, object]:
        """For `/readyz` and `/status.json`."""
        unmet = [need for need in self._needs if not need.met()]
        return {
            "state": "stopping" if self._stopping else "ready" if self._ready else "starting",
            "waiting_for": [] if self._ready else [need.name for need in unmet],
            "degraded": list(self.degraded),
            "ready_before_warm": self._early,
        }
