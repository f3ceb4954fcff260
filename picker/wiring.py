"""From settings to the parts behind a seam: plane, peers, workers. Faults become setting errors."""

from __future__ import annotations

from collections.abc import Callable

from discovery.backends import open_peers, open_workers
from discovery.source import DiscoveryError, PeerSource, WorkerSource
from picker.core.criteria import Setup
from picker.criteria import loading
from picker.criteria.judging import Criteria
from picker.requests.rewritefile import WatchedRules
from picker.requests.tokens import Tokens
from picker.settings import Settings, SettingsError
from stateplane.backends import open_plane, scheme_of
from stateplane.booking import Owner, Rules
from stateplane.desk import Desk
from stateplane.errors import StatePlaneError
from stateplane.plane import StatePlane


def rules_of(settings: Settings) -> Rules:
    """The times that all replicas of the pool must agree on."""
    plane = settings.plane
    return Rules(
        lease=plane.booking_ttl_seconds,
        heartbeat=plane.heartbeat_seconds,
        drain=plane.drain_seconds,
        superseded_drain=plane.superseded_drain_seconds,
        tombstone=plane.tombstone_seconds,
    )


def _refuse_impossible_modes(settings: Settings) -> None:
    url = settings.plane.plane_url.get_secret_value()
    several = bool(settings.discovery.peers or settings.discovery.peer_service)
    if url.startswith("memory:") and settings.sync != "isolated" and several:
        raise SettingsError(
            [
                (
                    "PICKER_PLANE_URL: the memory plane lives inside one process and cannot be shared with peers; "
                    "use redis://host:port, or PICKER_SYNC=isolated"
                )
            ]
        )


def _refuse_atomic_without(plane: StatePlane, settings: Settings) -> None:
    if settings.sync == "atomic" and "select" not in plane.capabilities:
        scheme = scheme_of(settings.plane.plane_url.get_secret_value())
        raise SettingsError(
            [
                (
                    f"PICKER_SYNC: atomic needs a plane that chooses and books in one step, which {scheme}:// cannot; "
                    "use redis:// or rediss:// in PICKER_PLANE_URL, or PICKER_SYNC=eventual"
                )
            ]
        )


def open_desk(settings: Settings, owner: Owner, *, clock: Callable[[], float]) -> tuple[Desk, StatePlane]:
    """This replica's hand in the plane, and the plane, to be closed once the desk has left; nothing is connected yet.

    Raises:
        SettingsError: the URL or the mode cannot be served.
    """
    _refuse_impossible_modes(settings)
    plane = settings.plane
    try:
        backend = open_plane(
            plane.plane_url.get_secret_value(),
            pool=settings.pool.pool,
            owner=owner,
            rules=rules_of(settings),
            timeout=plane.plane_timeout_seconds,
            password_file=plane.plane_password_file,
            ca_file=plane.plane_ca_file,
            certificate_file=plane.plane_certificate_file,
            key_file=plane.plane_key_file,
        )
    except StatePlaneError as error:
        raise SettingsError([f"PICKER_PLANE_URL: {error}"]) from error
    _refuse_atomic_without(backend, settings)
    desk = Desk(
        backend,
        owner,
        rules=rules_of(settings),
        mode=settings.sync,
        clock=clock,
        capacity=plane.plane_outbox,
        timeout=plane.plane_timeout_seconds,
        budget=plane.atomic_budget_seconds,
        selects=plane.atomic_parallel,
    )
    return desk, backend


def open_criteria(settings: Settings) -> Criteria:
    """The operator's own criteria.

    Raises:
        SettingsError: one of them cannot be used, or pairs of labels are named that nobody reads.
    """
    price = settings.price
    setup = Setup(settings.pool.pool, price.block_size, price.label_affinity)
    try:
        criteria = loading.open_criteria(price.criteria, setup)
    except loading.CriteriaError as error:
        raise SettingsError([f"PICKER_CRITERIA: {error}"]) from error
    if price.label_affinity and "labels" not in price.criteria:
        raise SettingsError(
            [
                "PICKER_LABEL_AFFINITY: the criterion `labels` reads it, and PICKER_CRITERIA does not name that; add it"
            ]
        )
    return criteria


def open_tokens(settings: Settings) -> Tokens:
    """The tokenizers; nothing is loaded yet.

    Raises:
        SettingsError: the list of tokenizers cannot be read.
    """
    try:
        return Tokens(settings.requests)
    except ValueError as error:
        raise SettingsError([f"PICKER_TOKENIZERS: {error}"]) from error


def open_rules(settings: Settings) -> WatchedRules:
    """The model rewrites; nothing is read yet."""
    pool = settings.pool
    return WatchedRules(
        settings.requests.model_rewrite_file, pool=pool.pool_name, namespace=pool.pool_namespace
    )


def open_worker_source(settings: Settings) -> WorkerSource:
    """Where workers come from.

    Raises:
        SettingsError: no source is set.
    """
    if settings.discovery.workers_file is None:
        raise SettingsError(
            ["PICKER_WORKERS_FILE: not set, and there is no other source of workers in this version"]
        )
    return open_workers(file=settings.discovery.workers_file)


def open_peer_source(settings: Settings) -> PeerSource:
    """Where peers come from.

    Raises:
        SettingsError: an address is wrong.
    """
    discovery = settings.discovery
    try:
        return open_peers(
            static=discovery.peers,
            service=discovery.peer_service,
            dns_server=discovery.dns_server,
            refresh_seconds=discovery.dns_refresh_seconds,
        )
    except DiscoveryError as error:
        raise SettingsError([f"PICKER_PEERS, PICKER_PEER_SERVICE or PICKER_DNS_SERVER: {error}"]) from error
