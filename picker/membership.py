"""What this replica tells the others of itself, and what it takes from what they tell.

Travels with the heartbeats: a digest of the pool-wide settings, whether an access log reaches the replica, and which
of the others' bookings that log named as running.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import structlog

from discovery.found import Peer
from picker.settings import Settings
from picker.underway import Underway
from stateplane.booking import SCHEMA, Member, Owner

log = structlog.get_logger(__name__)

LOG_MEMORY = 300.0
"""Seconds for which an access log that named a booking is believed to go on coming."""

LOG_GRACE = 10.0
"""Seconds for which a log is still expected after the member that received it has gone: gateways open it anew."""

RULES_GRACE = 120.0
"""Seconds for which members may rewrite models by other rules: a changed file does not reach all of them at once."""

SIGHTING_SECONDS = 1.0

POOL_WIDE = (
    ("price", ("block_size", "overlap_credit", "prefill_scale", "request_weight", "host_tier_weight",
               "disk_tier_weight", "temperature", "max_worker_requests", "lora_narrow", "lora_load_blocks", "criteria",
               "label_affinity")),
    ("plane", ("booking_ttl_seconds", "heartbeat_seconds", "drain_seconds", "superseded_drain_seconds",
               "tombstone_seconds", "sync")),
    ("requests", ("request_key_headers", "loras", "base_model")),
)  # fmt: skip
"""Settings on which the replicas of a pool must agree."""


def settings_digest(settings: Settings) -> str:
    """Sixteen hexadecimal digits that are equal where all pool-wide settings are."""
    values = {
        f"{part}.{name}": getattr(getattr(settings, part), name)
        for part, names in POOL_WIDE
        for name in names
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]


class Members(Protocol):
    """What this module asks of the replica's hand in the plane."""

    def publish(self, **info: str) -> None:
        """Say this of this replica from the next heartbeat on."""
        ...

    @property
    def members(self) -> Sequence[Member]:
        """All members, this one included."""
        ...

    owner: Owner


class Membership:
    """Speaks and listens through the members' info. `tick` is called a few times a second."""

    def __init__(
        self,
        settings: Settings,
        desk: Members,
        underway: Underway,
        *,
        clock: Callable[[], float],
        rules: Callable[[], str] = lambda: "",
    ) -> None:
        """``rules`` tells a digest of the model rewrites in force; empty: not known."""
        self.peers: Iterable[Peer] = ()
        """As discovery has them."""
        self._hold: Literal["", "headers", "response"] = settings.serving.stream_hold
        self._desk = desk
        self._underway = underway
        self._clock = clock
        self._digest = settings_digest(settings)
        self._log_known = float("-inf")
        self._sighted_at = float("-inf")
        self._last_sightings: tuple[str, ...] = ()
        self._batch = 0
        """Numbers the batches: the same ids named again are news."""
        self._heard: dict[Owner, str] = {}
        self._differing: frozenset[str] = frozenset()
        self._rules = rules
        self._rules_since: dict[Owner, float] = {}
        """Members that rewrite models by other rules -> since when."""
        self._rules_differing: frozenset[str] = frozenset()
        desk.publish(schema=str(SCHEMA), digest=self._digest, log="0", seen="")

    def hold(self) -> Literal["headers", "response"]:
        """Until when a stream is held: without a log that tells ends, only the stream itself can."""
        if self._hold:
            return self._hold
        return "headers" if self.log_expected else "response"

    @property
    def log_expected(self) -> bool:
        """Whether some member receives an access log that names our bookings."""
        return self._clock() - self._log_known < LOG_GRACE

    @property
    def digest(self) -> str:
        """Of this replica's own pool-wide settings."""
        return self._digest

    @property
    def differing(self) -> frozenset[str]:
        """Members that run with other pool-wide settings."""
        return self._differing

    @property
    def rules_differing(self) -> frozenset[str]:
        """Members that have rewritten models by other rules for longer than a new file takes to reach all."""
        return self._rules_differing

    def tick(self, now: float) -> None:
        """Refresh what we say, and take in what the others say."""
        heard = self._underway.log_heard
        mine = heard is not None and now - heard < LOG_MEMORY
        self._desk.publish(log="1" if mine else "0", rules=self._rules())
        if now - self._sighted_at >= SIGHTING_SECONDS:
            self._sighted_at = now
            fresh = self._underway.sightings()
            # two batches overlap, so that a heartbeat between them misses none
            self._batch += 1
            self._desk.publish(seen=f"{self._batch}|" + ",".join((*self._last_sightings, *fresh)))
            self._last_sightings = fresh
        members = self._desk.members
        if mine or any(member.info.get("log") == "1" for member in members):
            self._log_known = now
        self._listen(members)

    def _listen(self, members: Sequence[Member]) -> None:
        others = {member.owner: member.info for member in members if member.owner != self._desk.owner}
        for owner, info in others.items():
            seen = info.get("seen", "")
            if seen and self._heard.get(owner) != seen:
                self._underway.sighted(seen.partition("|")[2].split(","))
            self._heard[owner] = seen
        for owner in self._heard.keys() - others.keys():
            del self._heard[owner]
        self._compare(others)
        self._compare_rules(others)

    def _compare(self, others: Mapping[Owner, Mapping[str, str]]) -> None:
        differing = frozenset(
            owner.name for owner, info in others.items() if info.get("digest", self._digest) != self._digest
        )
        if differing - self._differing:
            log.error(
                "members run with other pool-wide settings", members=sorted(differing), digest=self._digest
            )
        self._differing = differing

    def _compare_rules(self, others: Mapping[Owner, Mapping[str, str]]) -> None:
        now, mine = self._clock(), self._rules()
        differing = {
            owner for owner, info in others.items() if mine and info.get("rules", "") not in {"", mine}
        }
        self._rules_since = {owner: self._rules_since.get(owner, now) for owner in differing}
        told = frozenset(
            owner.name for owner, since in self._rules_since.items() if now - since > RULES_GRACE
        )
        if told - self._rules_differing:
            log.error("members rewrite models by other rules", members=sorted(told), digest=mine)
        self._rules_differing = told
