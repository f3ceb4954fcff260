"""Faults of a release in Kubernetes. On loopback there is no such thing; there they are not offered.

A replica that is killed or ended in good order is `chaos.injectors.process`, on either target.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from chaos.injectors import InjectionError, Running


@dataclass(frozen=True, slots=True)
class Evict:
    """A replica's pod is evicted, as by `kubectl drain` of its node."""

    target: str
    back: bool = True
    """Whether leaving the block waits for another one in its place."""
    kind: str = field(default="evict", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"evict the pod of {self.target}, as a drain of its node does"

    def into(self, _running: Running) -> AbstractAsyncContextManager[None]:
        """Not on loopback."""
        raise _nowhere(self.kind)


@dataclass(frozen=True, slots=True)
class Rollout:
    """All replicas are exchanged, as by `kubectl rollout restart`."""

    target: str = field(default="release", init=False)
    kind: str = field(default="rollout", init=False)

    def describe(self) -> str:
        """One line for people."""
        return "restart the release by a rollout: new pods one after the other, until all are new"

    def into(self, _running: Running) -> AbstractAsyncContextManager[None]:
        """Not on loopback."""
        raise _nowhere(self.kind)


@dataclass(frozen=True, slots=True)
class Scale:
    """So many replicas more, or fewer."""

    by: int
    target: str = field(default="release", init=False)
    kind: str = field(default="scale", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"scale the release by {self.by:+d} replicas, then back"

    def into(self, _running: Running) -> AbstractAsyncContextManager[None]:
        """Not on loopback."""
        raise _nowhere(self.kind)


@dataclass(frozen=True, slots=True)
class Cordon:
    """Nothing new may be put onto the node of a replica."""

    target: str
    kind: str = field(default="cordon", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"cordon the node that {self.target} runs on, then uncordon it"

    def into(self, _running: Running) -> AbstractAsyncContextManager[None]:
        """Not on loopback."""
        raise _nowhere(self.kind)


@dataclass(frozen=True, slots=True)
class CutOff:
    """Nothing goes out of a replica any more, by a NetworkPolicy; what comes in is still answered."""

    target: str
    kind: str = field(default="cut-off", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"let nothing out of {self.target} by a NetworkPolicy: no plane, no events, no peers; then delete it"

    def into(self, _running: Running) -> AbstractAsyncContextManager[None]:
        """Not on loopback."""
        raise _nowhere(self.kind)


def evict(target: str, *, back: bool = True) -> Evict:
    """A replica's pod evicted; healed by another one in its place."""
    return Evict(target, back)


def rollout() -> Rollout:
    """All pods exchanged; healed when all are new."""
    return Rollout()


def scale(by: int) -> Scale:
    """So many replicas more or fewer; healed by the original number."""
    return Scale(by)


def cordon(target: str) -> Cordon:
    """The node of a replica; healed by uncordoning it."""
    return Cordon(target)


def cut_off(target: str) -> CutOff:
    """A replica from whatever it dials; healed by deleting the policy."""
    return CutOff(target)


def _nowhere(kind: str) -> InjectionError:
    return InjectionError(f"{kind} is a fault of a release in Kubernetes: play it with --target kube")
