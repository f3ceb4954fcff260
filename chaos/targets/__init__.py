"""Where scenarios run.

`chaos.targets.local` starts everything itself on loopback. `chaos.targets.kube` meets a release in Kubernetes: replicas
are then the release's picker pods, engines the pods of its pool, and nothing outside the named namespace and release is
touched. Both have the same face. A scenario names the faults that it needs, a target those that it offers; what cannot
be played somewhere is listed as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from chaos.injectors import Fault, Injection
from chaos.topology import Topology

TARGETS: dict[str, str] = {
    "local": "everything on 127.0.0.1, started and ended by the suite",
    "kube": "a release in Kubernetes, by --kubeconfig, --namespace, --release and --gateway",
}
"""Kind of target -> what it is, for ``--target``."""


class TargetError(Exception):
    """A target that there is not, or that cannot be met. Says what is wrong, and what there is or what to do."""


@runtime_checkable
class Target(Protocol):
    """What a run needs of the place where it runs."""

    @property
    def gateway(self) -> str:
        """URL that load is sent to."""
        ...

    @property
    def model(self) -> str:
        """Model that requests name; empty: the simulated engines'."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What the replicas' pages ask for."""
        ...

    @property
    def topology(self) -> Topology:
        """What it is made of."""
        ...

    @property
    def offers(self) -> frozenset[str]:
        """What scenarios may need: kinds of faults, and ``local`` for all that only a pool of the suite's own has."""
        ...

    @property
    def lacks(self) -> Sequence[str]:
        """What it cannot tell, of what checks may need; see `chaos.story.Story.lacks`."""
        ...

    @property
    def same_clock(self) -> bool:
        """Whether engines tell times of this machine's clock."""
        ...

    @property
    def notice_seconds(self) -> float:
        """Within which the gateway learns that a replica is gone, beyond what checks allow for anyway."""
        ...

    @property
    def slack_seconds(self) -> float:
        """What its faults may take on top of a scenario's budget."""
        ...

    def replicas(self) -> Mapping[str, str]:
        """Replica's name -> ``host:port`` of its admin pages; a live mapping where replicas come and go."""
        ...

    def engines(self) -> Mapping[str, str]:
        """Engine's name -> ``host:port``, its name in the pool; empty where engines do not tell the truth."""
        ...

    def truths(self) -> Mapping[str, str]:
        """Engine's name -> ``host:port`` where it tells what it carries."""
        ...

    def extproc(self, replica: str) -> str:
        """``host:port`` of a replica's ext_proc port."""
        ...

    def begin(self, tell: Callable[[Fault], None]) -> None:
        """A scenario begins; its faults are told there."""
        ...

    def words(self, injection: Injection) -> str:
        """What an injection does here, in one line for people."""
        ...

    def enter(self, injection: Injection) -> AbstractAsyncContextManager[None]:
        """An injection, brought about here. Raises InjectionError for one that cannot be."""
        ...

    async def audit(self) -> Mapping[str, Any]:
        """What the plane's server itself holds. Raises `chaos.audit.AuditError`; not asked where it is lacking."""
        ...

    def told(self) -> Mapping[str, Any]:
        """What it is, for the report."""
        ...

    def keep_logs(self) -> None:
        """A scenario failed: what is kept in any case is the target's own business."""
        ...

    async def make_whole(self) -> None:
        """Bring back whatever does not run."""
        ...

    async def stop(self) -> None:
        """End what the suite started; heal what it did to what it did not start."""
        ...


def check_target(text: str) -> None:
    """Raise TargetError unless ``text`` names a target that there is."""
    if text not in TARGETS:
        known = "; ".join(f"{name}: {what}" for name, what in TARGETS.items())
        raise TargetError(f"target {text!r} is none that there is ({known})")
