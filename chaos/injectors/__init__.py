"""Faults: each one is an async context manager that proves itself, and heals in ``finally``.

An injection is a value that a scenario names (``freeze("plane")``, ``latency("picker-0>plane", seconds=0.5)``). It does
nothing until ``into(running)`` is entered. Leaving it heals, also when the block raised or was cancelled, and returns
only when the healing took effect.

Names of targets, understood everywhere through ``running.resolve``: ``picker-0`` ... (replicas), ``engine-0`` ...,
``bridge-0`` ..., ``envoy``, ``nats``, and ``plane``: the server that keeps the bookings, whichever it is.

Names of links: ``FROM>TO`` with those names, for example ``picker-0>plane``, ``picker-1>nats``, ``bridge-0>nats``,
``envoy>picker-0`` (ext_proc and access log); ``*>engine-1`` is one wire before that engine, for all who dial it. Only
links that the scenario's topology declares go through a wire; ``running.wires`` has them by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from picker.sim.cluster import Cluster

Phase = Literal["begin", "seen", "healing", "healed"]
"""``begin``: about to act. ``seen``: proof that it took effect, from the outside (the process state, a counter
of the wire, a failed dial). ``healing``: about to undo. ``healed``: undone, and proven so: bounds start there."""


class InjectionError(Exception):
    """A fault could not be brought about or healed. Says which, on what, and what was seen instead."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One step of one fault; written into the history as it happens."""

    id: str
    """One life of one fault: the four phases share it. From ``running.fault_id(kind, target)``."""
    kind: str
    """The injection's name: ``kill``, ``freeze``, ``latency`` ..."""
    target: str
    """A child's name, a link's name, ``dns``, ``plane``."""
    phase: Phase
    value: Mapping[str, Any] = field(default_factory=dict)
    """Parameters with ``begin``; the evidence with ``seen`` and ``healed``. JSON values only."""


class Wire(Protocol):
    """A proxy that a link goes through; `chaos.injectors.wire.TcpWire` and `chaos.injectors.nats.NatsWire`.

    Both are made by ``await Kind.open(listen="127.0.0.1:port", upstream="127.0.0.1:port", name="picker-0>plane")``:
    listening when that returns, passing everything on unchanged. ``close()`` ends all of it and never raises.
    """

    name: str
    listen: str
    upstream: str

    async def close(self) -> None:
        """Stop listening, cut what runs."""
        ...


class Names(Protocol):
    """The name server of a topology with ``dns=True``; `chaos.injectors.dns.NameServer`.

    Made by ``await NameServer.open(listen="127.0.0.1:port", answers={"picker-peers.local": ("127.0.0.1", ...)})``.
    """

    listen: str
    answers: dict[str, tuple[str, ...]]

    async def close(self) -> None:
        """Stop answering."""
        ...


@runtime_checkable
class Running(Protocol):
    """The running local cluster, as injectors see it; `chaos.targets.local.Local` is one."""

    @property
    def cluster(self) -> Cluster:
        """Children (``cluster.children[name]``), ``kill``, ``restart``, ``set_workers``, addresses."""
        ...

    @property
    def folder(self) -> Path:
        """A folder of this run; files of an injector go here."""
        ...

    @property
    def wires(self) -> Mapping[str, Wire]:
        """The declared links' proxies, by link name."""
        ...

    @property
    def names(self) -> Names | None:
        """The name server, where the topology has one."""
        ...

    def resolve(self, target: str) -> str:
        """The child's name behind a target's name (``plane`` -> ``valkey``). KeyError names what there is."""
        ...

    def pid(self, target: str) -> int:
        """Process id of a target's present life."""
        ...

    def fault_id(self, kind: str, target: str) -> str:
        """A fresh id for one life of a fault, the same in every run of one scenario and seed."""
        ...

    def tell(self, fault: Fault) -> None:
        """Write one phase of a fault into the history. Never raises, never waits."""
        ...


@runtime_checkable
class Injection(Protocol):
    """What a scenario says shall go wrong. A frozen dataclass: equal ones do the same."""

    @property
    def kind(self) -> str:
        """The name in the history: ``freeze``."""
        ...

    @property
    def target(self) -> str:
        """What it hits: ``plane``, ``picker-0>plane``."""
        ...

    def describe(self) -> str:
        """One line for people and ``--dry-run``: ``stop the process of the plane (SIGSTOP), then let it go on``."""
        ...

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Enter: tell ``begin``, act, wait for proof, tell ``seen``. Leave: ``healing``, undo, ``healed``.

        Raises InjectionError when the fault cannot be brought about; whatever was begun is undone then.
        """
        ...


# What there is (each returns an Injection):
#   process   kill(target, back=True)  terminate(target, back=True)  freeze(target)  restart(target, kept=False)
#   links     latency partition half_open bandwidth slow_close refuse reset, on a link or a pattern such as ``*>plane``
#   messages  drop double delay reorder: single NATS messages by subject, on links to NATS
#   clock     step(target, seconds=...), for children that the topology names in ``clocks``; a plane on NATS also
#             needs ``links=("*>plane",)``
#   dns       stale empty nxdomain servfail silent, with ``dns=True``
#   workers   leave(engine)         failover  failover(), with ``links=("*>plane",)`` and the plane on Redis
#   consumer  slow_consumer()       poison    poison_events(engine)  poison_bodies(model=...)
#   release   evict(replica)  rollout()  scale(by)  cordon(replica)  cut_off(replica), of a release in Kubernetes alone
