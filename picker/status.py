"""What a replica shows of itself: `/status.json`, `/bookings.json`, and the numbers behind the gauges."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Protocol

from discovery.source import PeerSource, WorkerSource
from picker.admin.protection import Protection
from picker.admin.server import AdminServer
from picker.core.adapters import Held
from picker.core.index import PrefixIndex
from picker.core.predicted import Predicted
from picker.core.race import atomic_pays_above, unseen_requests
from picker.criteria.judging import Criteria
from picker.eligibility import Eligibility
from picker.events.subscriber import Subscriber
from picker.membership import Membership
from picker.neighbours import Neighbours
from picker.picking import Picking
from picker.pool import WorkerPool
from picker.readiness import Readiness
from picker.reconciling import Reconciling
from picker.requests.objectives import Objectives
from picker.requests.rewritefile import WatchedRules
from picker.requests.rewriteobjects import JoinedRules
from picker.requests.tokens import Tokens
from picker.serving.server import Server
from picker.settings import Settings
from picker.underway import Underway
from picker.workers.models import ModelLists
from picker.workers.record import Record
from picker.workers.registry import Registry
from picker.workers.scrape import Scraper
from stateplane.booking import NOTHING, Booking, Owner
from stateplane.desk import Desk, DeskStatus
from stateplane.plane import StatePlane


class Parts(Protocol):
    """The parts of one replica that are shown."""

    settings: Settings
    admin: AdminServer
    criteria: Criteria
    models: ModelLists
    owner: Owner
    desk: Desk
    eligibility: Eligibility
    index: PrefixIndex
    membership: Membership
    neighbours: Neighbours
    objectives: Objectives
    picking: Picking
    peers: PeerSource
    plane: StatePlane
    predicted: Predicted
    pool: WorkerPool
    protection: Protection | None
    readiness: Readiness
    reconciling: Reconciling
    registry: Registry
    rules: WatchedRules | JoinedRules
    scraper: Scraper
    server: Server
    subscriber: Subscriber
    tokens: Tokens
    underway: Underway
    workers: WorkerSource


SHOWN_MODELS = 16
"""So many names of base models are shown per worker."""
SHOWN_ADAPTERS = 64
"""So many adapters are shown per worker and source."""

PLANE_STATES = {"healthy": 0, "slow": 1, "away": 2}


class Status:
    """Reads the parts of one replica; changes nothing."""

    def __init__(self, parts: Parts, *, started: float, clock: Callable[[], float]) -> None:
        self._parts = parts
        self._started = started
        self._clock = clock

    def shown(self) -> Mapping[str, Any]:
        """The whole picture for an operator."""
        it = self._parts
        events = it.subscriber.status()
        return {
            "replica": {
                "name": it.owner.name,
                "incarnation": it.owner.incarnation,
                "pool": it.settings.pool.pool,
                "started_at": self._started,
                "stream_hold": it.membership.hold(),
                "open_streams": it.server.open_streams,
                "requests_under_way": len(it.underway),
                **it.readiness.shown(),
            },
            "peers": sorted(peer.address for peer in it.membership.peers),
            "members": [
                {"name": member.owner.name, "incarnation": member.owner.incarnation,
                 "log": member.info.get("log") == "1", "digest": member.info.get("digest", ""),
                 "schema": member.info.get("schema", "")}
                for member in it.desk.members
            ],
            "peers_port": it.neighbours.port.shown(),
            "settings_digest": it.membership.digest,
            "settings_differ": sorted(it.membership.differing),
            "plane": _plane(it.desk.status(), len(it.registry.names)),
            "events": {
                "enabled": events.enabled,
                "state": events_state(it.subscriber),
                "away_seconds": events.away_seconds,
                "last_error": events.last_error,
                "waiting": events.waiting,
                "silent_workers": it.subscriber.silent(),
                "predictions_confirmed": {name: round(ratio, 3) for name, ratio in it.predicted.ratios().items()},
            },
            "tokenizers": it.tokens.status(),
            "model_rewrites": {**it.rules.status(), "differ": sorted(it.membership.rules_differing)},
            "discovery": {"workers": _source(it.workers, self._clock()), "peers": _source(it.peers, self._clock()),
                          "objectives": it.objectives.status()},
            "criteria": _criteria(it.criteria),
            "tenants": it.picking.tenants.status(),
            "models_differ": it.registry.mixed,
            "protection": None if it.protection is None else it.protection.status(),
            "adapters": {"known": len(it.registry.adapters), "forgotten": it.registry.adapters.forgotten},
            "workers": [self._worker(name, events.workers.get(name)) for name in it.registry.names],
        }  # fmt: skip

    def _worker(self, name: str, followed: Any) -> Mapping[str, Any]:
        it, now = self._parts, self._clock()
        report = it.registry.report(name, now)
        return {
            "name": name,
            "booked": asdict(it.desk.view.load(name)),
            "reported": None
            if report is None
            else {"running": report.running, "waiting": report.waiting, "kv_usage": report.kv_usage,
                  "asleep": report.asleep, "age_seconds": round(now - report.ended, 3)},
            "models": _models(it.registry.record(name)),
            "adapters": _adapters(it.registry.held(name, now)),
            "unbooked": it.pool.unbooked(name, now)._asdict(),
            "drift_requests": it.reconciling.drift.get(name),
            "index_blocks": it.index.count(name),
            "events": None if followed is None else _followed(followed),
        }  # fmt: skip

    def bookings(self) -> Mapping[str, Any]:
        """Every booking of the view, and its sums by worker: both of one moment."""
        view = self._parts.desk.view
        version = view.version
        return {
            "version": {"epoch": version.epoch, "number": version.number},
            "sums": {worker: asdict(amount) for worker, amount in view.loads().items()},
            "bookings": [_booking(booking) for booking in view.bookings().values()],
        }

    def gauges(self) -> Mapping[str, float]:
        """The gauges without labels."""
        it = self._parts
        plane, link = it.desk.status(), it.subscriber.link
        return {
            "plane_state": PLANE_STATES[str(plane.state)],
            "plane_lag_seconds": plane.lag,
            "plane_staleness_seconds": plane.staleness,
            "plane_rate_staleness": unseen_requests(plane.rate, plane.staleness),
            "plane_atomic_pays_above": atomic_pays_above(len(it.registry.names)),
            "plane_outbox": plane.outbox,
            "events_connected": float(link.connected),
            "events_unrecovered_workers": len(it.subscriber.unrecovered()),
            "members": len(it.desk.members),
            "peers": _length(it.membership.peers),
            "streams_open": it.server.open_streams,
            "log_streams_open": it.server.open_log_streams,
            "buffered_bytes": it.server.buffered_bytes,
            "tasks": len(asyncio.all_tasks()),
            "certificate_expires_seconds": it.server.certificate_expires or 0,
            "bookings_own": plane.own,
            "bookings_foreign": plane.foreign,
            "bookings_draining": plane.draining,
            "index_entries": len(it.index),
            "ready": float(it.readiness.ready),
            "settings_differ": float(bool(it.membership.differing or it.membership.rules_differing)),
            "events_silent_workers": len(it.subscriber.silent()),
            "predictions_failing_models": len(it.predicted.failing()),
        }

    def worker_gauges(self) -> Mapping[str, Mapping[str, float]]:
        """The gauges per worker."""
        it, now = self._parts, self._clock()
        names = it.registry.names
        booked = {name: it.desk.view.load(name) for name in names}
        unbooked = {name: it.pool.unbooked(name, now) for name in names}
        reports = {name: it.registry.report(name, now) for name in names}
        return {
            "booked_requests": {name: load.requests for name, load in booked.items()},
            "booked_blocks": {name: load.blocks for name, load in booked.items()},
            "booked_prefill_tokens": {name: load.prefill_tokens for name, load in booked.items()},
            "unbooked_requests": {name: load.requests for name, load in unbooked.items()},
            "unbooked_blocks": {name: load.blocks for name, load in unbooked.items()},
            "reported_requests": {name: r.requests for name, r in reports.items() if r is not None},
            "index_blocks": {name: it.index.count(name) for name in names},
            "drift": it.reconciling.drift,
        }

    def scrapes(self) -> Mapping[str, bool]:
        """Whether each worker's last scrape succeeded."""
        return {record.name: bool(record.ok) for record in self._parts.registry.records}

    def counts(self) -> Mapping[str, Callable[[], object]]:
        """Where each part's counts are read."""
        it = self._parts
        return {
            "serving": lambda: it.server.counts,
            "http2": lambda: it.server.http2,
            "picks": lambda: it.picking.counts,
            "requests": lambda: it.tokens.counts,
            "rewriting": lambda: it.picking.rewriting.counts,
            "rewrite_file": lambda: it.rules.counts,
            "responses": lambda: it.picking.answers.counts,
            "events": lambda: it.subscriber.counts,
            "scrapes": lambda: it.scraper.counts,
            "models": lambda: it.models.counts,
            "criteria": lambda: it.criteria.counts,
            "eligibility": lambda: it.eligibility.counts,
            "tenants": lambda: it.picking.tenants.counts,
            "workers": lambda: it.registry.counts,
            "underway": lambda: it.underway.counts,
            "reconciling": lambda: it.reconciling.counts,
            "plane": lambda: it.desk.counts,
            "plane_backend": lambda: it.plane.counts,
            "index": lambda: it.index.counts,
            "predicted": lambda: it.predicted.counts,
            **_event_counts(it.subscriber),
            **_object_counts(it),
            **_protection_counts(it.protection),
            "discovery_workers": lambda: it.workers.counts,
            "discovery_peers": lambda: it.peers.counts,
            "peers": lambda: it.neighbours.counts,
            "peers_port": lambda: it.neighbours.port.connections,
            "admin_port": lambda: it.admin.counts,
        }


def _source(source: WorkerSource | PeerSource, now: float) -> Mapping[str, Any]:
    """A source's own words, and how old they are; JSON knows no infinity."""
    age = source.age(now)
    return {**source.status(), "age_seconds": None if math.isinf(age) else round(age, 3)}


def events_state(subscriber: Subscriber) -> str:
    """How the connection to the KV events' server stands."""
    if not subscriber.enabled:
        return "off"
    return "healthy" if subscriber.link.connected else "away"


def _object_counts(parts: Parts) -> Mapping[str, Callable[[], object]]:
    """Counts of the kinds of API objects that are read."""
    rules, objectives = parts.rules, parts.objectives.source
    return ({"rewrite_objects": lambda: rules.objects.counts} if isinstance(rules, JoinedRules) else {}) | (
        {} if objectives is None else {"objectives": lambda: objectives.counts}
    )


def _protection_counts(protection: Protection | None) -> Mapping[str, Callable[[], object]]:
    """Counts of the admin port's protection, where there is any."""
    return {} if protection is None else {"protection": lambda: protection.counts}


def _plane(status: DeskStatus, workers: int) -> Mapping[str, Any]:
    """Without the members: they have a place of their own."""
    shown = {field.name: getattr(status, field.name) for field in fields(status) if field.name != "members"}
    shown["version"] = {"epoch": status.version.epoch, "number": status.version.number}
    shown["rate_staleness"] = unseen_requests(status.rate, status.staleness)
    shown["atomic_pays_above"] = atomic_pays_above(workers) if workers > 1 else None
    return shown | {"state": str(status.state), "since_seconds": round(shown.pop("since"), 3)}


def _criteria(criteria: Criteria) -> list[Mapping[str, Any]]:
    """Each criterion, in the order in which they are asked."""
    counts = {field.name: getattr(criteria.counts, field.name) for field in fields(criteria.counts)}
    return [{"name": name} | {what: by[name] for what, by in counts.items()} for name in criteria.names]


def _models(record: Record | None) -> list[str] | None:
    """The base models that a worker lists; None: it lists none."""
    models = None if record is None else record.models
    return None if models is None else sorted(models.bases)[:SHOWN_MODELS]


def _adapters(held: Held) -> Mapping[str, Any]:
    """A worker's LoRA adapters by each source; None: that source does not say."""
    shown = {"labels": held.labelled, "listed": held.listed, "running": held.running}
    return {
        source: None if names is None else sorted(names)[:SHOWN_ADAPTERS] for source, names in shown.items()
    } | {"most_running": held.most}


def _event_counts(subscriber: Subscriber) -> Mapping[str, Callable[[], object]]:
    """Counts of the further sources of prefixes that are switched on."""
    dynamo, picks = subscriber.dynamo, subscriber.picks
    tails = subscriber.tail_picks
    always: dict[str, Callable[[], object]] = {
        "shared_tails": lambda: tails.counts,
        "tails": lambda: tails.approximate.counts,
    }
    return (
        always
        | ({} if dynamo is None else {"dynamo": lambda: dynamo.counts})
        | (
            {}
            if picks is None
            else {"shared_picks": lambda: picks.counts, "approximate": lambda: picks.approximate.counts}
        )
    )


def _followed(followed: Any) -> Mapping[str, Any]:
    """A worker's event state; its epoch is a named tuple, which JSON does not know."""
    shown = asdict(followed)
    return shown | {"epoch": None if followed.epoch is None else followed.epoch._asdict()}


def _booking(booking: Booking) -> Mapping[str, Any]:
    return {
        "id": booking.id,
        "key": booking.key,
        "worker": booking.worker,
        "owner": str(booking.owner),
        "state": str(booking.state),
        "cause": None if booking.cause is None else str(booking.cause),
        "superseded": booking.superseded,
        "attempt": booking.attempt,
        "term": booking.term,
        **asdict(booking.amount or NOTHING),
    }


def _length(things: Iterable[object]) -> int:
    return sum(1 for _ in things)
