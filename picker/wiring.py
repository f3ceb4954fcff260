"""From settings to the parts behind a seam: plane, peers, workers. Faults become setting errors."""

from __future__ import annotations

import os
from collections.abc import Callable

from discovery.backends import (
    PEER_PORT,
    open_objects,
    open_peers,
    open_pool_workers,
    open_reviewer,
    open_workers,
)
from discovery.kubernetes.objectives import read_objective
from discovery.source import DiscoveryError, PeerSource, WorkerSource
from picker.admin.protection import Protection
from picker.core.criteria import Setup
from picker.criteria import loading
from picker.criteria.judging import Criteria
from picker.requests.objectives import Objectives
from picker.requests.rewritefile import WatchedRules
from picker.requests.rewriteobjects import JoinedRules, read_object
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
            connect=plane.plane_connect_seconds,
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
        connect=plane.plane_connect_seconds,
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


def open_rules(settings: Settings) -> WatchedRules | JoinedRules:
    """The model rewrites; nothing is read yet."""
    pool, discovery = settings.pool, settings.discovery
    file = WatchedRules(
        settings.requests.model_rewrite_file, pool=pool.pool_name, namespace=pool.pool_namespace
    )
    if "inferencemodelrewrites" not in discovery.api_objects:
        return file
    objects = open_objects(
        "inferencemodelrewrites",
        namespace=pool.pool_namespace,
        read=read_object,
        kubeconfig=discovery.kubeconfig,
    )
    return JoinedRules(file, objects, pool=pool.pool_name)


def open_objectives(settings: Settings) -> Objectives:
    """The InferenceObjectives; nothing is read yet."""
    pool, discovery = settings.pool, settings.discovery
    if "inferenceobjectives" not in discovery.api_objects:
        return Objectives()
    objects = open_objects(
        "inferenceobjectives",
        namespace=pool.pool_namespace,
        read=read_objective,
        kubeconfig=discovery.kubeconfig,
    )
    return Objectives(objects, pool=pool.pool_name)


def open_protection(settings: Settings, *, clock: Callable[[], float]) -> Protection | None:
    """Who judges tokens for the admin port; None: nobody. Nothing is asked yet.

    Raises:
        SettingsError: there is no API server to ask.
    """
    if settings.admin.metrics_protection == "open":
        return None
    if not _has_server(settings):
        raise SettingsError(
            [
                (
                    "PICKER_METRICS_PROTECTION: kubernetes asks an API server, and outside a pod none is known; "
                    "set PICKER_KUBECONFIG, or open"
                )
            ]
        )
    reviewer = open_reviewer(kubeconfig=settings.discovery.kubeconfig)
    return Protection(reviewer, life=settings.admin.metrics_review_seconds, clock=clock)


def _has_server(settings: Settings) -> bool:
    """Whether an API server is known."""
    return settings.discovery.kubeconfig is not None or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def open_worker_source(settings: Settings) -> WorkerSource:
    """Where workers come from.

    Raises:
        SettingsError: no source is set, or the one that is lacks what it reads.
    """
    pool, discovery = settings.pool, settings.discovery
    source = discovery.worker_source
    reachable = _has_server(settings)
    if source == "file" or (not source and (discovery.workers_file is not None or not reachable)):
        if discovery.workers_file is None:
            raise SettingsError(
                [
                    (
                        "PICKER_WORKERS_FILE: not set, so that nobody names the workers; set it, or outside a pod "
                        "PICKER_KUBECONFIG, to read the InferencePool"
                    )
                ]
            )
        return open_workers(file=discovery.workers_file)
    if not pool.pool_name:
        raise SettingsError(["PICKER_POOL_NAME: the InferencePool to read has no name"])
    return open_pool_workers(
        pool=pool.pool_name,
        namespace=pool.pool_namespace,
        kubeconfig=discovery.kubeconfig,
        imports="inferencepoolimports" in discovery.api_objects,
        import_kubeconfig=discovery.import_kubeconfig,
    )


def open_peer_source(settings: Settings) -> PeerSource:
    """Where peers come from.

    Raises:
        SettingsError: an address is wrong, or the source lacks what it reads.
    """
    discovery = settings.discovery
    try:
        return open_peers(
            source=discovery.peer_source,
            static=discovery.peers,
            service=discovery.peer_service,
            namespace=settings.pool.pool_namespace,
            port=settings.peers.peers_port or PEER_PORT,
            dns_server=discovery.dns_server,
            refresh_seconds=discovery.dns_refresh_seconds,
            kubeconfig=discovery.kubeconfig,
        )
    except DiscoveryError as error:
        raise SettingsError(
            [f"PICKER_PEER_SOURCE, PICKER_PEERS, PICKER_PEER_SERVICE or PICKER_DNS_SERVER: {error}"]
        ) from error
