"""Faults of single NATS messages, as injections; ``link`` may be a pattern such as ``bridge-*>nats``."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from chaos.injectors import InjectionError, Running
from chaos.injectors.life import Evidence, life, seen
from chaos.injectors.links import wires_of
from chaos.injectors.nats import MessageFault, NatsWire, What
from picker.events.subjects import ROOT

EVENTS = f"{ROOT}.*.kv.>"
"""Every worker's KV events."""
ASKS = f"{ROOT}.*.ask.>"
"""Replicas' questions for what they missed."""
PICKS = f"{ROOT}.*.picks.>"
"""What replicas tell each other of workers without events."""
_VERBS = {"drop": "lose", "double": "double", "delay": "delay", "reorder": "let the next one overtake"}


@dataclass(frozen=True, slots=True)
class Messages:
    """What happens to a share of the messages of some subjects on some links."""

    what: What
    target: str
    subject: str
    share: float
    seconds: float
    seed: int

    @property
    def kind(self) -> str:
        """The name in the history."""
        return f"messages-{self.what}"

    def describe(self) -> str:
        """One line for people."""
        late = f" by {self.seconds:g} s" if self.what == "delay" else ""
        return (
            f"{_VERBS[self.what]}{late} {self.share:.0%} of the messages on {self.subject} over {self.target}"
        )

    def into(self, running: Running) -> AbstractAsyncContextManager[None]:
        """Entered once it has happened to a message; what was kept back goes on when left."""
        begun: list[tuple[NatsWire, MessageFault]] = []

        async def act() -> Evidence:
            for wire in nats_wires(running, self.target):
                fault = MessageFault(
                    self.what, self.subject, way="there" if self._published(wire) else "back",
                    share=self.share, seconds=self.seconds, seed=f"{self.seed}/{wire.name}",
                )  # fmt: skip
                wire.faults.append(fault)
                begun.append((wire, fault))
            what = f"a message on {self.subject} over {self.target} to {_VERBS[self.what]}"
            await seen(lambda: any(fault.hits for _, fault in begun), what=what)
            return self._tally(begun)

        async def heal() -> Evidence:
            for wire, fault in begun:
                wire.stop(fault)
            return self._tally(begun)

        value = {"subject": self.subject, "share": self.share, "seconds": self.seconds, "seed": self.seed}
        return life(running, kind=self.kind, target=self.target, value=value, act=act, heal=heal)

    def _published(self, wire: NatsWire) -> bool:
        """Bridges publish events and hear questions; replicas the other way round."""
        bridge = wire.name.startswith("bridge-")
        return bridge != (self.subject in (ASKS, PICKS))

    def _tally(self, begun: list[tuple[NatsWire, MessageFault]]) -> Evidence:
        return {wire.name: {"matched": fault.matched, "hit": fault.hits} for wire, fault in begun}


def nats_wires(running: Running, links: str) -> list[NatsWire]:
    """The wires of these links, all to NATS. Raises InjectionError."""
    found = wires_of(running, links)
    wires = [wire for wire in found if isinstance(wire, NatsWire)]
    if len(wires) != len(found):
        raise InjectionError(
            f"not every link of {links!r} goes to NATS: single messages are told apart there only"
        )
    return wires


def drop(link: str, *, subject: str = EVENTS, share: float = 1.0, seed: int = 0) -> Messages:
    """That share of the messages is lost, others pass."""
    return Messages("drop", link, subject, share, 1.0, seed)


def double(link: str, *, subject: str = EVENTS, share: float = 1.0, seed: int = 0) -> Messages:
    """That share of the messages comes twice, the second right after the first."""
    return Messages("double", link, subject, share, 1.0, seed)


def delay(link: str, *, seconds: float, subject: str = EVENTS, share: float = 1.0, seed: int = 0) -> Messages:
    """That share of the messages comes so much later; others overtake it."""
    return Messages("delay", link, subject, share, seconds, seed)


def reorder(
    link: str, *, within: float = 1.0, subject: str = EVENTS, share: float = 0.5, seed: int = 0
) -> Messages:
    """That share of the messages comes right after the next one of the subjects, where one comes within that time."""
    return Messages("reorder", link, subject, share, within, seed)
