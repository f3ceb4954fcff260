"""Where replicas are looked for, and what their names tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from discovery.source import DiscoveryError
from picker.check import places
from picker.check.places import find, from_ports
from picker.check.rows import State
from picker.settings import Settings, load

Named = Callable[[dict[str, Sequence[str]]], None]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Named:
    """Say which addresses stand behind which names."""

    def say(names: dict[str, Sequence[str]]) -> None:
        async def resolved(name: str, _settings: Settings, *, seconds: float) -> Sequence[str]:
            del seconds
            return sorted(names.get(name, ()))

        monkeypatch.setattr(places, "resolved", resolved)

    return say


async def found(service: str = "", peer_service: str = "", **settings: object) -> places.Found:
    return await find(load({}, **settings), service=service, peer_service=peer_service, seconds=1)


async def test_every_address_behind_the_headless_name_is_a_replica_on_the_ports_that_are_set(
    named: Named,
) -> None:
    named({"peers": ["10.0.0.2", "fd00::1"], "picker": ["10.0.0.2"]})
    all_of_them = await found("picker", "peers", grpc_port=1, grpc_health_port=2, peers_port=3)
    assert [(place.extproc, place.health, place.peers) for place in all_of_them.places] == [
        ("10.0.0.2:1", "10.0.0.2:2", "10.0.0.2:3"),
        ("[fd00::1]:1", "[fd00::1]:2", "[fd00::1]:3"),
    ]
    assert [(row.check, row.state) for row in all_of_them.rows] == [
        ("peer names", State.OK),
        ("names", State.OK),
    ]


async def test_a_cluster_ip_is_a_warning(named: Named) -> None:
    named({"peers": ["10.0.0.2", "10.0.0.3"], "picker": ["10.96.0.9"]})
    row = (await found("picker", "peers")).rows[1]
    assert row.state is State.WARNING
    assert "ClusterIP" in row.reason
    assert "headless" in row.remedy


async def test_a_name_of_nobody_fails(named: Named) -> None:
    named({})
    nobody = await found("picker", "peers")
    assert nobody.places == ()
    assert [row.state for row in nobody.rows] == [State.FAILED, State.FAILED]


async def test_the_environment_names_them_where_no_option_does(
    named: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    named({"env-peers": ["10.0.0.2"]})
    monkeypatch.setenv("PICKER_PEER_SERVICE", "env-peers")
    assert [place.name for place in (await found()).places] == ["10.0.0.2"]
    monkeypatch.setenv("PICKER_PEERS", "10.0.0.3:7,10.0.0.4")
    assert [place.peers for place in (await found()).places] == ["10.0.0.3:7", "10.0.0.4:9092"]


async def test_without_any_name_the_replica_on_this_machine_is_checked_and_that_is_said(named: Named) -> None:
    named({})
    here = await found()
    assert [place.extproc for place in here.places] == ["127.0.0.1:9002"]
    assert [row.state for row in here.rows] == [State.SKIPPED]


async def test_an_address_is_its_own_name_and_no_name_is_refused() -> None:
    assert [place.name for place in (await found(peer_service="::1")).places] == ["::1"]
    with pytest.raises(DiscoveryError, match="neither a host name"):
        await found(peer_service="no such name")


@pytest.mark.parametrize("page", [None, {}, [], {"replicas": [{}]}, {"replicas": 7}])
def test_a_file_that_is_no_ports_file_is_refused(page: object) -> None:
    with pytest.raises(ValueError, match="no ports file"):
        from_ports(page)
