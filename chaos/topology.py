"""What a scenario runs on: replicas, workers, the plane, the gateway, and which links can be disturbed."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import orjson

PlaneName = Literal["redis", "nats"]
PLANES: tuple[PlaneName, ...] = ("redis", "nats")
Sync = Literal["", "isolated", "eventual", "atomic"]
Hold = Literal["", "headers", "response"]

DECODE_MS = 25.0
"""Milliseconds an engine of the suite takes for a token while it has nothing else to do."""


class TopologyError(Exception):
    """A topology that cannot be. Says why, and what can."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Equal topologies share one cluster, one scenario after the other."""

    replicas: int = 3
    workers: int = 3
    plane: PlaneName = "redis"
    sync: Sync = ""
    """`PICKER_SYNC`; empty: the default of the replicas."""
    hold: Hold = ""
    """`PICKER_STREAM_HOLD`; empty: the default of the replicas."""
    fails_open: bool = False
    """Whether the gateway sends a request on when no replica answers."""
    retries: int = 0
    """Tries after the first one, by the gateway itself, on resets, failed connections and 5xx."""
    access_log: bool = True
    """Whether the gateway tells replicas of ends by its access log."""
    sentinels: bool = False
    """Whether sentinels watch the plane's server, which two others follow; replicas then ask them where it is."""
    links: tuple[str, ...] = ()
    """Links that go through a wire which can be disturbed: patterns such as ``picker-0>plane`` or ``*>nats``.

    ``*>engine-0`` is one wire before that engine: all who dial it go through it."""
    dns: bool = False
    """Whether replicas find each other through a name server of the suite."""
    clocks: tuple[str, ...] = ()
    """Children whose clock can be stepped."""
    decode_ms: float = DECODE_MS
    engine_options: tuple[str, ...] = ()
    """Further options of ``picker sim engine``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further ``PICKER_*`` variables of every replica."""
    place: str = ""
    """Where it is, where the suite did not start it: what else there is to it is then not known here."""

    def on(self, plane: PlaneName) -> Topology:
        """The same on another plane."""
        return replace(self, plane=plane)

    def check(self) -> None:
        """Raise TopologyError for one that could not start."""
        if self.replicas < 1 or self.workers < 1:
            raise TopologyError("a topology needs at least one replica and one worker")
        if self.plane not in PLANES:
            raise TopologyError(f"plane {self.plane!r} is none of {', '.join(PLANES)}")
        if self.sentinels and (self.plane != "redis" or any(">plane" in link for link in self.links)):
            raise TopologyError(
                "sentinels need plane='redis', and name its server to replicas past every wire"
            )
        if self.plane == "nats" and self.sync == "atomic":
            raise TopologyError("sync='atomic' needs plane='redis': NATS cannot choose and book in one step")
        for pattern in self.links:
            if not any(fnmatch.fnmatchcase(link, pattern) for link in self.possible_links()):
                some = ", ".join(list(self.possible_links())[:6])
                raise TopologyError(f"link {pattern!r} matches none of the links, such as {some}")

    def possible_links(self) -> tuple[str, ...]:
        """Every link that could go through a wire."""
        pickers = [f"picker-{n}" for n in range(self.replicas)]
        workers = range(self.workers)
        return (
            *(f"{picker}>plane" for picker in pickers),
            *(f"{picker}>nats" for picker in pickers),
            *(f"bridge-{n}>nats" for n in workers),
            *(f"envoy>{picker}" for picker in pickers),
            *(f"*>engine-{n}" for n in workers),
        )

    def wired_links(self) -> tuple[str, ...]:
        """The links that ``links`` names."""
        return tuple(
            link
            for link in self.possible_links()
            if any(fnmatch.fnmatchcase(link, pattern) for pattern in self.links)
        )

    @property
    def key(self) -> str:
        """Short name of everything above: equal keys, equal clusters."""
        text = orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(text, digest_size=6).hexdigest()

    def words(self) -> str:
        """One line for people."""
        said = [f"{self.replicas} replicas", f"{self.workers} workers", f"plane {self.plane}"]
        if self.place:
            return ", ".join((self.place, *said))
        said += [f"sync {self.sync}"] if self.sync else []
        said += [f"streams held to the {self.hold}"] if self.hold else []
        said += ["gateway fails open" if self.fails_open else "gateway fails closed"]
        said += [f"{self.retries} gateway retries"] if self.retries else []
        said += ["sentinels, and two standbys of the plane"] if self.sentinels else []
        said += [] if self.access_log else ["no access log"]
        said += [f"wires: {_listed(self.links)}"] if self.links else []
        said += ["peers by DNS"] if self.dns else []
        said += [f"clocks: {_listed(self.clocks)}"] if self.clocks else []
        said += [f"{name}={value}" for name, value in sorted(self.settings.items())]
        return ", ".join(said)


def _listed(words: Iterable[str]) -> str:
    return " ".join(words)
