"""Looks at every replica and every engine several times a second, and writes down what they say of themselves.

A look that fails is a record too: a checker must be able to tell "nothing was booked" from "nobody answered".
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from chaos.history import Writer

LOOK_SECONDS = 0.25
ROW = (
    "id", "worker", "owner", "state", "cause", "superseded", "attempt", "term",
    "prefill_tokens", "blocks", "requests", "key",
)  # fmt: skip
"""The columns of a booking in a ``view`` record."""
AMOUNT = ("prefill_tokens", "blocks", "requests")
_TIMEOUT = aiohttp.ClientTimeout(total=1.5)
_STATUS_EVERY, _COUNTERS_EVERY = 2, 4
"""Of so many looks at a replica, one takes the dearer page too."""
GAUGES = frozenset(
    {
        "process_resident_memory_bytes",
        "process_open_fds",
        "picker_streams_open",
        "picker_index_entries",
        "picker_plane_outbox",
        "picker_peers",
        "picker_tasks",
    }
)
"""Series without labels that a soak wants flat."""
_COUNTED = ("_total", "_bucket", "_count")


@dataclass(slots=True)
class _Engine:
    """How far an engine's ended sequences have been read."""

    born: float = 0.0
    after: int = 0
    ahead: float = 0.0
    """Of this machine's clock, by how many seconds the engine's is."""


@dataclass(slots=True)
class Observer:
    """``run()`` looks until it is cancelled; ``look()`` looks once at everything."""

    history: Writer
    http: aiohttp.ClientSession
    replicas: Mapping[str, str]
    """Name -> admin ``host:port``; who comes is looked at from then on, who goes no more."""
    engines: Mapping[str, str]
    """Name -> ``host:port``."""
    seconds: float = LOOK_SECONDS
    headers: Mapping[str, str] = field(default_factory=dict)
    """What replicas' pages ask for."""
    same_clock: bool = True
    """Whether engines tell times of this machine's clock."""
    _engines: dict[str, _Engine] = field(default_factory=dict)
    _counters: dict[str, dict[str, float]] = field(default_factory=dict)
    _turns: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Every part is looked at on its own, so that one that hangs delays no other."""
        async with asyncio.TaskGroup() as group:
            for name, address in self.engines.items():
                group.create_task(self._again(self._engine, name, address))
            looking: dict[tuple[str, str], asyncio.Task[None]] = {}
            members = set(self.replicas)
            while True:
                there = set(self.replicas.items())
                for one in there - looking.keys():
                    looking[one] = group.create_task(self._again(self._replica, *one))
                for one in looking.keys() - there:
                    looking.pop(one).cancel()
                if members != set(self.replicas):
                    members = set(self.replicas)
                    self.history.write("run", "members", "info", replicas=list(self.replicas))
                await asyncio.sleep(self.seconds)

    async def look(self) -> None:
        """Once, everything."""
        self._turns.clear()
        await asyncio.gather(
            *(self._replica(name, address) for name, address in list(self.replicas.items())),
            *(self._engine(name, address) for name, address in self.engines.items()),
        )

    async def _again(self, look: Any, name: str, address: str) -> None:
        due = time.monotonic()
        while True:
            await look(name, address)
            due = max(due + self.seconds, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _replica(self, name: str, address: str) -> None:
        await self._page(name, "view", f"http://{address}/bookings.json", view_of, self.headers)
        turn = self._turns[name] = self._turns.get(name, -1) + 1
        if turn % _STATUS_EVERY == 0:
            await self._page(name, "status", f"http://{address}/status.json", status_of, self.headers)
        if turn % _COUNTERS_EVERY == 0:
            await self._counted(name, address)

    async def _counted(self, name: str, address: str) -> None:
        begun = time.monotonic()
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            url = f"http://{address}/metrics"
            async with self.http.get(url, timeout=_TIMEOUT, headers=self.headers) as response:
                response.raise_for_status()
                text = await response.text()
            changed, gauges = self._changed(name, counters_of(text)), gauges_of(text)
            self.history.write(name, "counters", "ok", asked=begun, changed=changed, gauges=gauges)

    def _changed(self, name: str, now: dict[str, float]) -> dict[str, float]:
        """Only what differs from the last look; a counter that fell is a new life's."""
        before = self._counters.get(name, {})
        self._counters[name] = now
        return {key: value for key, value in now.items() if before.get(key, 0.0) != value}

    async def _engine(self, name: str, address: str) -> None:
        known = self._engines.setdefault(name, _Engine())
        begun = time.monotonic()

        def read(page: dict[str, Any]) -> dict[str, Any]:
            if self.same_clock:
                return page
            if page["born"] != known.born:  # once for each life, so that equal times stay equal
                known.ahead = page["now"] - (begun + time.monotonic()) / 2
            return on_our_clock(page, known.ahead)

        page = await self._page(name, "carried", f"http://{address}/debug/lives?after={known.after}", read)
        if page is None:
            return
        if page["born"] != known.born:
            # numbers begin anew with each life: what this one ended before the look is asked for by the next
            known.born, known.after = page["born"], 0
        elif page["ended"]:
            known.after = page["ended"][-1]["number"]

    async def _page(
        self, name: str, f: str, url: str, read: Any, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any] | None:
        begun = time.monotonic()
        try:
            async with self.http.get(url, timeout=_TIMEOUT, headers=headers) as response:
                response.raise_for_status()
                page: dict[str, Any] = read(orjson.loads(await response.read()))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            self.history.write(name, f, "fail", asked=begun, fault=f"{type(error).__name__}: {error}"[:200])
            return None
        self.history.write(name, f, "ok", asked=begun, **page)
        return page


def on_our_clock(page: Mapping[str, Any], ahead: float) -> dict[str, Any]:
    """A ``/debug/lives`` page of an engine whose clock is ahead of ours by so many seconds, with our times."""
    return {
        **page,
        "now": page["now"] - ahead,
        "carried": [{**row, "arrived": row["arrived"] - ahead} for row in page["carried"]],
        "ended": [
            {**row, "arrived": row["arrived"] - ahead, "ended": row["ended"] - ahead} for row in page["ended"]
        ],
    }


def view_of(page: Mapping[str, Any]) -> dict[str, Any]:
    """A ``/bookings.json`` page, its rows as lists of `ROW`."""
    return {
        "epoch": page["version"]["epoch"],
        "version": page["version"]["number"],
        "sums": {worker: [sums[key] for key in AMOUNT] for worker, sums in page["sums"].items()},
        "bookings": [[row[key] for key in ROW] for row in page["bookings"]],
    }


def status_of(page: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``/status.json`` is judged or drawn."""
    replica, plane = page["replica"], page["plane"]
    return {
        "incarnation": replica["incarnation"],
        "state": replica["state"],
        "hold": replica["stream_hold"],
        "streams": replica["open_streams"],
        "members": [f"{each['name']}/{each['incarnation']}" for each in page["members"]],
        "plane": {key: plane[key] for key in ("state", "outbox", "owing", "kept", "staleness") if key in plane},
        "events": page["events"]["state"],
        "workers": {
            each["name"]: {
                "booked": each["booked"]["requests"],
                "reported": each["reported"] and each["reported"]["running"] + each["reported"]["waiting"],
                "unbooked": each["unbooked"]["requests"],
            }
            for each in page["workers"]
        },
    }  # fmt: skip


def counters_of(text: str) -> dict[str, float]:
    """The counters and histogram parts of a metrics page, by series; those at zero are left out."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        series, _, number = line.rpartition(" ")
        if not series or line.startswith("#") or not series.partition("{")[0].endswith(_COUNTED):
            continue
        if not series.startswith(("picker_", "endpoint_picker_")):
            continue
        with contextlib.suppress(ValueError):
            value = float(number)
            if value:
                found[series] = value
    return found


def gauges_of(text: str) -> dict[str, float]:
    """The gauges of `GAUGES` on a metrics page."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, number = line.rpartition(" ")
        if name in GAUGES:
            with contextlib.suppress(ValueError):
                found[name] = float(number)
    return found


def rows(bookings: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Bookings of a ``view`` record as mappings."""
    return [dict(zip(ROW, row, strict=False)) for row in bookings]
