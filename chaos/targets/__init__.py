"""Where scenarios run.

`chaos.targets.local` starts everything itself on loopback. A release in Kubernetes is met by a second target with the
same face: replicas are then the release's picker pods, engines the pods of its pool, and nothing outside the named
namespace and release is touched. Injections see a target through `chaos.injectors.Running`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from chaos.injectors import Fault

TARGETS: dict[str, str] = {"local": "everything on 127.0.0.1, started and ended by the suite"}
"""Kind of target -> what it is, for ``--target``. A kind is the word before the first colon of the option's value."""


class TargetError(Exception):
    """A target that there is not. Says which there are."""


@runtime_checkable
class Target(Protocol):
    """What a run needs of the place where it runs."""

    @property
    def gateway(self) -> str:
        """URL that load is sent to."""
        ...

    def replicas(self) -> Mapping[str, str]:
        """Replica's name -> ``host:port`` of its admin pages."""
        ...

    def engines(self) -> Mapping[str, str]:
        """Engine's name -> ``host:port``, its name in the pool; empty where engines do not tell the truth."""
        ...

    def extproc(self, replica: str) -> str:
        """``host:port`` of a replica's ext_proc port."""
        ...

    def begin(self, tell: Callable[[Fault], None]) -> None:
        """A scenario begins; its faults are told there."""
        ...

    async def make_whole(self) -> None:
        """Bring back whatever does not run."""
        ...

    async def stop(self) -> None:
        """End what the suite started; heal what it did to what it did not start."""
        ...


def check_target(text: str) -> None:
    """Raise TargetError unless ``text`` names a target that there is."""
    kind = text.partition(":")[0]
    if kind not in TARGETS:
        known = "; ".join(f"{name}: {what}" for name, what in TARGETS.items())
        raise TargetError(f"target {text!r} is none that there is ({known})")
