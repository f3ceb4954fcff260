"""Which modes start on which planes, and what is said of those that do not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from discovery.headless import HeadlessPeers
from discovery.kubernetes.imported import ImportedWorkers
from discovery.kubernetes.peers import SlicePeers
from discovery.kubernetes.workers import PoolWorkers
from discovery.watched import WatchedWorkers
from picker import settings
from picker.requests.rewritefile import WatchedRules
from picker.requests.rewriteobjects import JoinedRules
from picker.settings import SettingsError
from picker.wiring import (
    open_desk,
    open_objectives,
    open_peer_source,
    open_protection,
    open_rules,
    open_worker_source,
)
from stateplane.booking import Owner

ME = Owner("r1", "1")


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "memory://"])
def test_atomic_is_served_by_planes_that_choose_and_book_in_one_step(url: str) -> None:
    desk, plane = open_desk(settings.load({}, sync="atomic", plane_url=url), ME, clock=time.monotonic)
    assert desk.mode == "atomic"
    assert "select" in plane.capabilities


def test_atomic_on_nats_does_not_start_and_says_why() -> None:
    given = settings.load({}, sync="atomic", plane_url="nats://user:secret@127.0.0.1:1")
    with pytest.raises(SettingsError) as error:
        open_desk(given, ME, clock=time.monotonic)
    [line] = error.value.lines
    assert line.startswith("PICKER_SYNC: atomic needs")
    assert "nats://" in line
    assert "PICKER_SYNC=eventual" in line
    assert "secret" not in line


@pytest.mark.parametrize("sync", ["eventual", "atomic"])
def test_the_memory_plane_is_not_shared_with_peers(sync: str) -> None:
    given = settings.load({}, sync=sync, plane_url="memory://", peers="10.0.0.1:9092")
    with pytest.raises(SettingsError, match="memory plane"):
        open_desk(given, ME, clock=time.monotonic)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "nats://127.0.0.1:1", "memory://"])
def test_eventual_and_isolated_start_on_every_plane(url: str) -> None:
    for sync in ("eventual", "isolated"):
        desk, _ = open_desk(settings.load({}, sync=sync, plane_url=url), ME, clock=time.monotonic)
        assert desk.mode == sync


@pytest.fixture
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.usefixtures("in_a_pod")
def test_in_a_pod_the_pool_names_the_workers_unless_a_file_does() -> None:
    assert isinstance(open_worker_source(settings.load({})), PoolWorkers)
    assert isinstance(open_worker_source(settings.load({}, workers_file=Path("w"))), WatchedWorkers)
    both = settings.load({}, workers_file=Path("w"), worker_source="kubernetes")
    assert isinstance(open_worker_source(both), PoolWorkers)


@pytest.mark.usefixtures("in_a_pod")
def test_a_file_that_is_wanted_and_not_named_is_asked_for() -> None:
    with pytest.raises(SettingsError, match="PICKER_WORKERS_FILE: not set"):
        open_worker_source(settings.load({}, worker_source="file"))


@pytest.mark.usefixtures("outside")
def test_outside_a_pod_the_pool_is_read_where_the_way_to_it_is_told() -> None:
    with pytest.raises(SettingsError, match="PICKER_KUBECONFIG"):
        open_worker_source(settings.load({}))
    assert isinstance(open_worker_source(settings.load({}, kubeconfig=Path("k"))), PoolWorkers)
    assert isinstance(open_worker_source(settings.load({}, worker_source="kubernetes")), PoolWorkers)


def test_api_objects_are_read_only_where_they_are_named() -> None:
    none = settings.load({})
    assert isinstance(open_rules(none), WatchedRules)
    assert open_objectives(none).source is None
    given = settings.load(
        {},
        kubeconfig=Path("k"),
        api_objects="inferenceobjectives,inferencemodelrewrites,inferencepoolimports",
    )
    assert isinstance(open_rules(given), JoinedRules)
    assert open_objectives(given).source is not None
    assert isinstance(open_worker_source(given), ImportedWorkers)


def test_an_api_object_that_is_not_read_is_refused_with_those_that_are() -> None:
    with pytest.raises(SettingsError, match=r"'pods' is not read; allowed are inferenceobjectives"):
        settings.load({}, api_objects="pods")


def test_peers_come_from_the_source_that_is_named() -> None:
    given = settings.load({}, peer_service="p.ns.svc", peer_source="endpointslices")
    assert isinstance(open_peer_source(given), SlicePeers)
    assert isinstance(open_peer_source(settings.load({}, peer_service="p.ns.svc")), HeadlessPeers)
    with pytest.raises(SettingsError, match="PICKER_PEER_SOURCE"):
        open_peer_source(settings.load({}, peer_source="dns"))


@pytest.mark.usefixtures("outside")
def test_metrics_are_open_unless_an_api_server_is_to_judge_and_is_known() -> None:
    assert open_protection(settings.load({}), clock=time.monotonic) is None
    protected = settings.load({}, metrics_protection="kubernetes")
    with pytest.raises(SettingsError, match=r"PICKER_METRICS_PROTECTION.*PICKER_KUBECONFIG"):
        open_protection(protected, clock=time.monotonic)


@pytest.mark.usefixtures("in_a_pod")
def test_in_a_pod_its_own_api_server_judges_who_reads_metrics() -> None:
    protection = open_protection(settings.load({}, metrics_protection="kubernetes"), clock=time.monotonic)
    assert protection is not None
    assert protection.status()["by"] == "kubernetes"
