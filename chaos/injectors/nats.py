"""A wire that knows NATS' protocol: single messages of a subject are lost, doubled, late, or overtaken by the next.

The bytes of all others pass as they are. Publishers speak ``there`` (bridges' events), subscribers hear ``back``, so
the same fault on a bridge's link hits all replicas, on a replica's link that one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from chaos.injectors.frames import Frame, Frames, matches
from chaos.injectors.lane import Filter, Flow, Way
from chaos.injectors.natsclock import ServerClock
from chaos.injectors.wire import TcpWire

What = Literal["drop", "double", "delay", "reorder"]
MOST_LATE = 10_000
"""Most messages that one wire keeps back; past it they pass at once."""
_MESSAGES = {"there": ("PUB", "HPUB"), "back": ("MSG", "HMSG")}


@dataclass(slots=True)
class MessageCounts:
    """What happened to messages, over all connections."""

    passed: int = 0
    """On, once each and in order."""
    dropped: int = 0
    doubled: int = 0
    delayed: int = 0
    reordered: int = 0
    """Overtaken by the next one of their subjects."""
    not_late: int = 0
    """Should have been late, but too many were already."""
    not_understood: int = 0
    """Pieces of streams that are not NATS."""


class MessageFault:
    """What happens to a share of the messages on some subjects. The n-th message's fate is the same for each seed."""

    def __init__(
        self,
        what: What,
        subject: str,
        *,
        way: Way,
        share: float = 1.0,
        seconds: float = 1.0,
        seed: int | str = 0,
    ) -> None:
        if not 0 < share <= 1 or seconds <= 0:
            raise ValueError(f"a share is in (0, 1] and seconds are positive, not {share} and {seconds}")
        self.what = what
        self.subject = subject
        self.way = way
        self.seconds = seconds
        """How late it is; reordered, how long it waits for the next one at most."""
        self.matched = 0
        self.hits = 0
        self._share = share
        self._dice = random.Random(f"{seed}/{what}/{subject}/{way}")

    def concerns(self, way: Way, frame: Frame) -> bool:
        """Whether this message is one of its subjects, on its way."""
        return way == self.way and frame.verb in _MESSAGES[way] and matches(self.subject, frame.subject)

    def draw(self) -> bool:
        """The fate of the next message that it concerns."""
        self.matched += 1
        return self._dice.random() < self._share


class NatsWire(TcpWire):
    """A `TcpWire` before a NATS server. ``faults`` may be changed at any time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.faults: list[MessageFault] = []
        self.messages = MessageCounts()
        self.clock: ServerClock | None = None
        """What the server's time of stored messages is made to be."""
        self._late: dict[_Late, None] = {}
        """In the order of their coming."""

    def sieve(self, way: Way, flow: Flow) -> Filter:
        """Cut the bytes into messages."""
        return _MessageFilter(self, way, flow)

    def stop(self, fault: MessageFault) -> None:
        """End a fault; what it kept back goes on at once."""
        if fault in self.faults:
            self.faults.remove(fault)
        for late in [late for late in self._late if late.fault is fault]:
            late.go()

    def keep(self, late: _Late) -> None:
        """Keep a message back for its time."""
        self._late[late] = None
        late.timer = asyncio.get_running_loop().call_later(late.fault.seconds, late.go)

    def room(self) -> bool:
        """Whether one more may be kept back."""
        return len(self._late) < MOST_LATE

    def gone(self, late: _Late) -> None:
        """It was passed on."""
        self._late.pop(late, None)

    async def close(self) -> None:
        """Stop listening, cut what runs. Never raises."""
        for late in list(self._late):
            late.forget()
        await super().close()


class _Late:
    """A message that waits."""

    def __init__(self, wire: NatsWire, fault: MessageFault, frame: Frame, source: _MessageFilter) -> None:
        self.fault = fault
        self.frame = frame
        self.timer: asyncio.TimerHandle | None = None
        self._wire, self._source = wire, source

    def go(self) -> None:
        """Pass it on."""
        self.forget()
        self._source.late(self)

    def forget(self) -> None:
        """Wait no more."""
        if self.timer is not None:
            self.timer.cancel()
        self._wire.gone(self)


class _MessageFilter(Filter):
    def __init__(self, wire: NatsWire, way: Way, flow: Flow) -> None:
        self._wire, self._way, self._flow = wire, way, flow
        self._frames = Frames()
        self._overtaken: dict[MessageFault, _Late] = {}

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Whole messages, those that go on now joined to one piece."""
        out = [raw for frame in self._frames.feed(data) for raw in self._passed(frame)]
        self._wire.messages.not_understood += self._frames.lost
        return (b"".join(out),) if out else ()

    def end(self) -> Iterable[bytes]:
        """Half a message passes too: it is not ours to hide it."""
        rest = self._frames.rest()
        return (rest,) if rest else ()

    def late(self, late: _Late) -> None:
        """A message has waited long enough."""
        if self._overtaken.get(late.fault) is late:
            del self._overtaken[late.fault]  # nothing came that could overtake it
        else:
            late.fault.hits += 1
        self._wire.messages.delayed += 1
        if not self._frames.lost:
            self._flow.put(late.frame.raw)

    def _passed(self, frame: Frame) -> Iterable[bytes]:
        if frame.verb not in _MESSAGES[self._way]:
            return (frame.raw,)
        clock = self._wire.clock
        if clock is not None and self._way == "back":
            frame = clock.told(frame)
        for fault in self._wire.faults:
            if not fault.concerns(self._way, frame):
                continue
            hit, overtaken = fault.draw(), self._overtaken.pop(fault, None)
            if overtaken is not None:
                overtaken.forget()
                fault.hits += 1
                self._wire.messages.reordered += 1
                return (frame.raw, overtaken.frame.raw)
            if hit:
                return self._changed(fault, frame)
        self._wire.messages.passed += 1
        return (frame.raw,)

    def _changed(self, fault: MessageFault, frame: Frame) -> Iterable[bytes]:
        counts = self._wire.messages
        if fault.what == "drop":
            fault.hits += 1
            counts.dropped += 1
            return ()
        if fault.what == "double":
            fault.hits += 1
            counts.doubled += 1
            return (frame.raw, frame.raw)
        if not self._wire.room():
            counts.not_late += 1
            return (frame.raw,)
        late = _Late(self._wire, fault, frame, self)
        self._wire.keep(late)
        if fault.what == "reorder":
            self._overtaken[fault] = late
        return ()
