"""What the replicas' own words mean, all of them together. Pure: values in, rows out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from picker.check.rows import Row, failed, ok, skipped, warning
from picker.peers.shapes import Summary

LONGEST_LAG = 3.0
"""Seconds that a view may be behind: a lease, past which a dead replica's load would be gone from the others'."""
SHOWN = 6
MARK = "picker-check-"
"""Begins the names of checks: their requests' ids, and themselves as members of the plane."""


class _Events(msgspec.Struct, frozen=True):
    recovered: bool = False


class _Worker(msgspec.Struct, frozen=True):
    name: str
    reported: dict[str, Any] | None = None
    events: _Events | None = None


class Status(msgspec.Struct, frozen=True):
    """What is read of a replica's status page."""

    workers: list[_Worker] = []
    peers: list[str] = []
    settings_differ: list[str] = []


@dataclass(frozen=True, slots=True)
class Word:
    """What one replica said of itself."""

    where: str
    summary: Summary
    status: Status = field(default_factory=Status)

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.summary.name


def read_status(page: Mapping[str, Any]) -> Status:
    """What is judged of a status page. Raises `msgspec.ValidationError`."""
    return msgspec.convert(page, Status)


def judged(words: Sequence[Word], *, expected: int | None, asked: int) -> list[Row]:
    """All checks that need several replicas' words. ``asked`` is how many addresses were asked for theirs."""
    once = list({(word.name, word.summary.incarnation): word for word in words}.values())
    if not once:
        why = "no replica's status could be read"
        rows = [skipped(check, "", why) for check in CHECKS]
        if expected is not None and asked < expected:
            rows[0] = failed(
                "replicas", "", f"{asked} addresses for {expected} replicas", "is a pod missing?"
            )
        return rows
    shared = [word for word in once if word.summary.plane.mode != "isolated"]
    return [
        _replicas(once, expected, silent=asked - len(words)),
        _members(once, shared),
        _discovery(once),
        _settings(once),
        _versions(once),
        _epoch(once, shared),
        *_plane(once),
        *_events(once),
        *_index(once),
        *_workers(once),
    ]


CHECKS = (
    "replicas",
    "members",
    "discovery",
    "settings",
    "versions",
    "plane epoch",
    "plane",
    "events",
    "index",
    "workers",
)


def _replicas(once: Sequence[Word], expected: int | None, *, silent: int) -> Row:
    names = _names(word.name for word in once)
    if expected is not None and len(once) < expected:
        return failed(
            "replicas",
            "",
            f"{len(once)} of {expected} told of themselves: {names}",
            "see the rows of the others; is a pod missing, or not started?",
        )
    if silent:
        return warning("replicas", "", f"{len(once)} told of themselves, {silent} addresses did not: {names}")
    return ok("replicas", "", f"{len(once)}: {names}")


def _members(once: Sequence[Word], shared: Sequence[Word]) -> Row:
    if not shared:
        return skipped("members", "", "isolated: replicas share nothing, as PICKER_SYNC asks")
    names = {word.name for word in once}
    for word in shared:
        # a check that looks at the plane directly is a member for a moment
        known = {name for name in word.summary.members if not name.startswith(MARK)}
        if names - known:
            return failed(
                "members",
                word.name,
                f"does not see {_names(names - known)}",
                "do all replicas have the same plane, pool and namespace?",
            )
        if known - names:
            return failed(
                "members",
                word.name,
                f"sees {_names(known - names)} too, which did not answer",
                "a replica that has just gone is missed within a few seconds; else its port is closed",
            )
    return ok("members", "", f"each of {len(shared)} sees the same {len(names)}")


def _discovery(once: Sequence[Word]) -> Row:
    if len(once) == 1:
        return skipped("discovery", "", "one replica has no peers")
    few = [word for word in once if len(word.status.peers) < len(once) - 1]
    if few:
        return failed(
            "discovery",
            few[0].name,
            f"knows {len(few[0].status.peers)} peers of {len(once) - 1}",
            "PICKER_PEER_SERVICE names the headless Service of all replicas; see /status.json, discovery",
        )
    return ok("discovery", "", f"each finds {len(once) - 1} or more peers")


def _settings(once: Sequence[Word]) -> Row:
    digests = _by(once, lambda word: word.summary.settings_digest)
    if len(digests) > 1:
        shown = "; ".join(f"{digest}: {_names(names)}" for digest, names in digests.items())
        return failed(
            "settings",
            "",
            f"pool-wide settings differ: {shown}",
            "give all replicas the same price, plane times and request settings; during a rollout it passes",
        )
    return ok("settings", "", f"all have digest {next(iter(digests))}")


def _versions(once: Sequence[Word]) -> Row:
    versions = _by(once, lambda word: word.summary.version)
    shown = "; ".join(f"{number}: {_names(names)}" for number, names in versions.items())
    if len(versions) > 1:
        return warning("versions", "", shown, "versions next to each other work together; finish the rollout")
    return ok("versions", "", shown)


def _epoch(once: Sequence[Word], shared: Sequence[Word]) -> Row:
    if not shared:
        return skipped("plane epoch", "", "isolated: there is no shared plane")
    strangers = [word.name for word in shared if not word.summary.plane.joined]
    if strangers:
        return failed(
            "plane epoch", "", f"not members of the plane: {_names(strangers)}", "see the row of the plane"
        )
    epochs = _by(shared, lambda word: str(word.summary.plane.epoch))
    if len(epochs) > 1:
        shown = "; ".join(f"{epoch}: {_names(names)}" for epoch, names in epochs.items())
        return failed(
            "plane epoch",
            "",
            f"replicas follow different lives of the plane: {shown}",
            "do they all reach the same server? Behind a proxy, one may reach another",
        )
    return ok("plane epoch", "", f"all follow {next(iter(epochs))}")


def _plane(once: Sequence[Word]) -> Iterable[Row]:
    for word in once:
        plane = word.summary.plane
        if plane.mode == "isolated":
            yield skipped("plane", word.name, "isolated: no plane is used")
        elif plane.state == "away":
            yield failed(
                "plane",
                word.name,
                "away: picks are made on the last known view",
                "is the server there, do address, password and policies let replicas reach it?",
            )
        elif plane.lag_seconds > LONGEST_LAG:
            yield failed(
                "plane",
                word.name,
                f"the view is {plane.lag_seconds:g} s behind",
                "is the server slow, or this replica starved of processor time?",
            )
        elif plane.state != "healthy":
            yield warning(
                "plane",
                word.name,
                f"{plane.state}; the view is {plane.lag_seconds:g} s behind",
                "see picker_plane_* of that replica",
            )
        else:
            yield ok("plane", word.name, f"{plane.mode}, healthy, {plane.lag_seconds:g} s behind")


def _events(once: Sequence[Word]) -> Iterable[Row]:
    for word in once:
        state = word.summary.events.state
        if state == "off":
            yield skipped(
                "events",
                word.name,
                "no NATS server is set: what workers hold is not known",
                "set PICKER_NATS_URL for picks by prefix",
            )
        elif state == "healthy":
            yield ok("events", word.name, "connected to NATS")
        else:
            yield failed(
                "events",
                word.name,
                "NATS is away: the index stays as it was",
                "is the server there, do address, credentials and policies let replicas reach it?",
            )


def _index(once: Sequence[Word]) -> Iterable[Row]:
    for word in once:
        if word.summary.events.state == "off":
            continue
        missing = [
            worker.name for worker in word.status.workers if worker.events and not worker.events.recovered
        ]
        if missing:
            yield warning(
                "index",
                word.name,
                f"not recovered: {_names(missing)}",
                "is the bridge beside that worker's engine there, and connected to the same NATS?",
            )
        else:
            yield ok("index", word.name, f"recovered for every worker, {word.summary.index_entries} entries")


def _workers(once: Sequence[Word]) -> Iterable[Row]:
    sets = {word.name: {worker.name for worker in word.status.workers} for word in once}
    everything: set[str] = set().union(*sets.values())
    for word in once:
        known, summary = sets[word.name], word.summary.workers
        silent = [worker.name for worker in word.status.workers if worker.reported is None]
        if not summary.known:
            yield failed(
                "workers",
                word.name,
                "knows no worker",
                "are there ready pods of the pool, and rights to read them? See /status.json, discovery",
            )
        elif known and everything - known:
            yield failed(
                "workers",
                word.name,
                f"does not know {_names(everything - known)}, which others do",
                "if it stays so, its source is stale: see /status.json, discovery",
            )
        elif not summary.reporting:
            yield failed(
                "workers",
                word.name,
                f"none of {summary.known} workers reports",
                "may replicas reach the engines' /metrics? See PICKER_METRICS_PATH and the policies",
            )
        elif silent:
            yield warning(
                "workers",
                word.name,
                f"{summary.known} known; without a report: {_names(silent)}",
                "they are priced by bookings alone; is their /metrics reachable?",
            )
        else:
            yield ok("workers", word.name, f"{summary.known} known, {summary.reporting} reporting")


def _by(once: Sequence[Word], key: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in once:
        found.setdefault(key(word), []).append(word.name)
    return found


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:SHOWN]) + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
