"""Faults of links: what a `TcpWire` between two parts can be made to do, as injections.

Every one is proven by the wire's own counters: bytes really delayed, thrown away or held. A link over which nothing
passes proves nothing, so that is an InjectionError after some seconds.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal

from chaos.injectors import InjectionError, Running
from chaos.injectors.lane import WAYS, Conditions, Way
from chaos.injectors.life import Evidence, life, seen
from chaos.injectors.wire import TcpWire

Ways = Literal["both", "there", "back"]


def wires_of(running: Running, links: str) -> list[TcpWire]:
    """The wires of a link, or of a pattern such as ``*>plane``. Raises InjectionError that names all links."""
    found = [wire for name, wire in running.wires.items() if name == links or fnmatchcase(name, links)]
    wires = [wire for wire in found if isinstance(wire, TcpWire)]
    if wires and len(wires) == len(found):
        return wires
    known = ", ".join(sorted(running.wires)) or "none at all"
    raise InjectionError(f"the topology declares no link {links!r}; its links are: {known}")


@dataclass(frozen=True, slots=True)
class Impairment:
    """Conditions of one link, as long as the block lasts. Two of them on one direction at a time do not mix."""

    kind: str
    target: str
    conditions: tuple[tuple[str, float], ...]
    """Of `Conditions`, name and value."""
    ways: tuple[Way, ...]
    proof: str
    """The counter of a lane that rises when it takes effect."""
    text: str

    def __post_init__(self) -> None:
        Conditions(**self._wanted)  # says what is wrong with them

    def describe(self) -> str:
        """One line for people."""
        which = "" if len(self.ways) == 2 else f" on the way {self.ways[0]}"
        return f"{self.text} on the link {self.target}{which}"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """The link is so until the block is left; then it is as before, and connections that lost bytes are cut."""
        value = {**self._wanted, "ways": list(self.ways)}

        async def act() -> Evidence:
            wires = wires_of(running, self.target)
            before = [self._count(wire) for wire in wires]
            for wire in wires:
                for way in self.ways:
                    wire.set(way, **self._wanted)
            for wire, had in zip(wires, before, strict=True):
                await seen(partial(self._more, wire, had), what=f"{self.proof} bytes on {wire.name}")
            return {
                wire.name: {self.proof: self._count(wire) - had}
                for wire, had in zip(wires, before, strict=True)
            }

        async def heal() -> Evidence:
            with suppress(InjectionError):  # then nothing was begun
                wires = wires_of(running, self.target)
                plain = asdict(Conditions())
                for wire in wires:
                    for way in self.ways:
                        wire.set(way, **{name: plain[name] for name, _ in self.conditions})
                cut = {wire.name: wire.cut_torn() for wire in wires}
                await asyncio.sleep(0)
                return {"cut": cut}
            return {}

        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)

    @property
    def _wanted(self) -> dict[str, Any]:
        return dict(self.conditions)

    def _more(self, wire: TcpWire, before: int) -> bool:
        return self._count(wire) > before

    def _count(self, wire: TcpWire) -> int:
        return sum(getattr(wire.lane(way).counts, self.proof) for way in self.ways)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Dials of one link are refused; with ``cut``, what runs is reset too."""

    target: str
    cut: bool = True
    kind: str = field(default="refuse", init=False)

    def describe(self) -> str:
        """One line for people."""
        return f"refuse dials on the link {self.target}" + (", reset its connections" if self.cut else "")

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Refused until the block is left."""

        async def act() -> Evidence:
            cut = {}
            for wire in wires_of(running, self.target):
                await wire.refuse(True)
                cut[wire.name] = wire.reset() if self.cut else 0
                if await dials(wire.listen):
                    raise InjectionError(f"a dial of {wire.name} is still taken")
            return {"dial": "refused", "cut": cut}

        async def heal() -> Evidence:
            with suppress(InjectionError):
                for wire in wires_of(running, self.target):
                    await wire.refuse(False)
                    if not await dials(wire.listen):
                        raise OSError(f"a dial of {wire.name} is still refused")
                return {"dial": "taken"}
            return {}

        value = {"cut": self.cut}
        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)


@dataclass(frozen=True, slots=True)
class Resets:
    """Connections of one link are reset: those that run at once, and with ``after`` each new one so much later."""

    target: str
    after: float | None = None
    kind: str = field(default="reset", init=False)

    def describe(self) -> str:
        """One line for people."""
        more = "" if self.after is None else f", each new one after {self.after:g} s"
        return f"reset all connections of the link {self.target}{more}"

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Connections that run are reset by the entering."""

        async def act() -> Evidence:
            resets = {}
            for wire in wires_of(running, self.target):
                before = wire.counts.resets
                wire.reset_after = self.after
                await seen(partial(_reset_some, wire, before), what=f"a connection to reset on {wire.name}")
                resets[wire.name] = wire.counts.resets - before
            return {"resets": resets}

        async def heal() -> Evidence:
            with suppress(InjectionError):
                wires = wires_of(running, self.target)
                for wire in wires:
                    wire.reset_after = None
                return {"resets": {wire.name: wire.counts.resets for wire in wires}}
            return {}

        value = {"after": self.after}
        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)


def _reset_some(wire: TcpWire, before: int) -> bool:
    return bool(wire.reset()) or wire.counts.resets > before


async def dials(address: str) -> bool:
    """Whether somebody takes a connection there."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(2):
            _, writer = await asyncio.open_connection(host, int(port))
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def _ways(ways: Ways) -> tuple[Way, ...]:
    return WAYS if ways == "both" else (ways,)


def latency(link: str, *, seconds: float, jitter: float = 0.0, ways: Ways = "there") -> Impairment:
    """Bytes are late by ``seconds`` and up to ``jitter`` more; on one way alone, a call takes that much longer."""
    text = f"delay bytes by {seconds:g} s" + (f" and up to {jitter:g} s more" if jitter else "")
    conditions = (("latency", seconds), ("jitter", jitter))
    return Impairment("latency", link, conditions, _ways(ways), "delayed", text)


def bandwidth(link: str, *, bytes_per_second: float, ways: Ways = "both") -> Impairment:
    """Each connection passes so many bytes a second each way."""
    text = f"let {bytes_per_second:g} bytes a second through"
    return Impairment("bandwidth", link, (("bandwidth", bytes_per_second),), _ways(ways), "narrowed", text)


def partition(link: str, *, ways: Ways = "both") -> Impairment:
    """Nothing passes, nothing is lost: what was sent arrives after the heal, as TCP does after a short partition."""
    return Impairment("partition", link, (("pause", True),), _ways(ways), "paused", "let nothing pass")


def half_open(link: str, *, ways: Ways = "both") -> Impairment:
    """The other side is gone without a word: bytes and ends are swallowed; the heal resets what lost bytes."""
    return Impairment("half-open", link, (("swallow", True),), _ways(ways), "swallowed", "swallow all bytes")


def slow_close(link: str, *, seconds: float, ways: Ways = "both") -> Impairment:
    """Ends of connections arrive so much later. Proven by the first end, so somebody has to end one."""
    text = f"keep ends of connections back for {seconds:g} s"
    return Impairment("slow-close", link, (("slow_close", seconds),), _ways(ways), "slow_closes", text)


def refuse(link: str, *, cut: bool = True) -> Refusal:
    """Dials are refused; with ``cut``, running connections are reset."""
    return Refusal(link, cut)


def reset(link: str, *, after: float | None = None) -> Resets:
    """Running connections are reset, and each new one ``after`` so many seconds."""
    return Resets(link, after)
