"""Peers by DNS: what a server answers, what it fails to answer, and how often it is asked."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import dns.rcode
import pytest
from structlog.testing import capture_logs

from discovery import DiscoveryError, Peer, headless
from discovery.headless import HeadlessPeers
from tests.unit.discovery.conftest import Taken, Zone

Until = Callable[[Callable[[], bool]], Awaitable[None]]
NAME = "picker.default.svc"
ONE, TWO = Peer("10.0.0.1", "10.0.0.1:9092"), Peer("10.0.0.2", "10.0.0.2:9092")
SIX = Peer("fd00::1", "[fd00::1]:9092")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headless, "MIN_REFRESH_SECONDS", 0.02)
    monkeypatch.setattr(headless, "LOOKUP_SECONDS", 20.0)


@pytest.fixture
async def peers(zone: Zone) -> HeadlessPeers:
    return HeadlessPeers(NAME, port=9092, server=zone.address, refresh_seconds=0.03)


@pytest.fixture
async def taken(peers: HeadlessPeers) -> AsyncIterator[Taken[Peer]]:
    mine = Taken[Peer](peers)
    yield mine
    await mine.stop()


async def test_both_families_are_peers_and_each_change_is_seen(
    zone: Zone, taken: Taken[Peer], until: Until
) -> None:
    zone.records = {"A": ["10.0.0.1"], "AAAA": ["fd00:0::1"]}
    await until(lambda: taken.sets[-1:] == [{ONE, SIX}])
    zone.records = {"A": ["10.0.0.2", "10.0.0.1"], "AAAA": ["fd00::1"]}
    await until(lambda: taken.sets[-1:] == [{ONE, TWO, SIX}])
    zone.records = {"A": ["10.0.0.2"]}
    await until(lambda: taken.sets[-1:] == [{TWO}])
    assert zone.names == {NAME + "."}


async def test_answers_in_another_order_are_no_change(
    zone: Zone, peers: HeadlessPeers, taken: Taken[Peer], until: Until
) -> None:
    zone.records = {"A": ["10.0.0.1", "10.0.0.2"]}
    await until(lambda: taken.sets[-1:] == [{ONE, TWO}])
    before, looks = len(taken.sets), peers.counts.looks
    zone.records = {"A": ["10.0.0.2", "10.0.0.1"]}
    await until(lambda: peers.counts.looks > looks + 2)
    assert len(taken.sets) == before


@pytest.mark.parametrize("code", [dns.rcode.SERVFAIL, dns.rcode.REFUSED])
async def test_a_server_that_fails_keeps_the_last_peers_and_is_said_once(
    zone: Zone, peers: HeadlessPeers, taken: Taken[Peer], until: Until, code: dns.rcode.Rcode
) -> None:
    zone.records = {"A": ["10.0.0.1"]}
    await until(lambda: taken.sets[-1:] == [{ONE}])
    with capture_logs() as logs:
        zone.codes = {"A": code, "AAAA": code}
        await until(lambda: peers.counts.failures >= 3)
        age = peers.age(time.monotonic())
        assert age > 0
        zone.codes = {}
        zone.records = {"A": ["10.0.0.2"]}
        await until(lambda: taken.sets[-1:] == [{TWO}])
        assert peers.age(time.monotonic()) < age
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
    assert {ONE} in taken.sets
    assert frozenset() not in taken.sets[taken.sets.index(frozenset({ONE})) :]


async def test_a_server_that_is_silent_keeps_the_last_peers(
    zone: Zone, peers: HeadlessPeers, taken: Taken[Peer], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.records = {"A": ["10.0.0.1"]}
    await until(lambda: taken.sets[-1:] == [{ONE}])
    monkeypatch.setattr(headless, "LOOKUP_SECONDS", 0.2)
    zone.silent = True
    await until(lambda: peers.counts.failures >= 1)
    assert taken.sets[-1] == {ONE}


@pytest.mark.parametrize("nobody", ["empty", "nxdomain"])
async def test_an_answer_that_names_nobody_keeps_the_last_peers(
    zone: Zone, peers: HeadlessPeers, taken: Taken[Peer], until: Until, nobody: str
) -> None:
    zone.records = {"A": ["10.0.0.1"]}
    await until(lambda: taken.sets[-1:] == [{ONE}])
    zone.records = {}
    if nobody == "nxdomain":
        zone.codes = {"A": dns.rcode.NXDOMAIN, "AAAA": dns.rcode.NXDOMAIN}
    await until(lambda: peers.counts.empty >= 2)
    assert taken.sets[-1] == {ONE}
    assert peers.counts.failures == 0


async def test_one_family_that_fails_keeps_its_own_last_addresses(
    zone: Zone, peers: HeadlessPeers, taken: Taken[Peer], until: Until
) -> None:
    zone.records = {"A": ["10.0.0.1"], "AAAA": ["fd00::1"]}
    await until(lambda: taken.sets[-1:] == [{ONE, SIX}])
    zone.codes = {"AAAA": dns.rcode.SERVFAIL}
    zone.records = {"A": ["10.0.0.2"]}
    await until(lambda: taken.sets[-1] == {TWO, SIX})
    assert peers.counts.failures >= 1


async def test_a_name_without_addresses_yet_is_an_empty_set_and_no_age(
    zone: Zone, peers: HeadlessPeers, taken: Taken[Peer], until: Until
) -> None:
    zone.codes = {"A": dns.rcode.NXDOMAIN, "AAAA": dns.rcode.NXDOMAIN}
    await until(lambda: taken.sets == [frozenset()])
    assert peers.age(time.monotonic()) == math.inf
    zone.codes = {}
    zone.records = {"A": ["10.0.0.1"]}
    await until(lambda: taken.sets == [frozenset(), {ONE}])


async def test_a_server_that_was_never_there_says_nothing(
    zone: Zone, peers: HeadlessPeers, until: Until
) -> None:
    zone.codes = {"A": dns.rcode.SERVFAIL, "AAAA": dns.rcode.SERVFAIL}
    taken = Taken[Peer](peers)
    await until(lambda: peers.counts.failures >= 2)
    assert taken.sets == []
    await taken.stop()


async def test_a_short_ttl_is_honoured_and_a_long_one_does_not_outlast_the_refresh(
    zone: Zone, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0.01)

    monkeypatch.setattr("discovery.headless.asyncio.sleep", note)
    monkeypatch.setattr(headless, "MIN_REFRESH_SECONDS", 1.0)
    peers = HeadlessPeers(NAME, port=1, server=zone.address, refresh_seconds=5.0)
    zone.records = {"A": ["10.0.0.1"]}
    found = peers.sets()
    for ttl, expected in ((3, 2.7), (300, 4.5), (0, 1.0)):
        zone.ttl = ttl
        zone.records = {"A": [f"10.0.0.{ttl % 250 + 1}"]}
        await anext(found)
        waits.clear()
        # the wait comes when the next set is asked for
        zone.records = {"A": [f"10.0.1.{ttl % 250 + 1}"]}
        zone.ttl = 3
        await anext(found)
        assert waits[0] == pytest.approx(expected)
    await found.aclose()  # type: ignore[attr-defined]


async def test_a_failing_server_is_asked_less_and_less_up_to_the_refresh(zone: Zone) -> None:
    peers = HeadlessPeers(NAME, port=1, server=zone.address, refresh_seconds=0.1)
    zone.codes = {"A": dns.rcode.SERVFAIL, "AAAA": dns.rcode.SERVFAIL}
    waits = [(await peers._look())[0] for _ in range(5)]
    assert waits == pytest.approx([0.02, 0.04, 0.08, 0.1, 0.1])


async def test_more_addresses_than_are_taken_are_cut_the_same_way_each_time(
    zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headless, "MAX_PEERS", 3)
    peers = HeadlessPeers(NAME, port=1, server=zone.address)
    zone.records = {"A": [f"10.0.0.{n}" for n in range(1, 9)]}
    first = await anext(peers.sets())
    zone.records["A"].reverse()
    again = HeadlessPeers(NAME, port=1, server=zone.address)
    assert await anext(again.sets()) == first
    assert len(first) == 3


@pytest.mark.parametrize(
    ("name", "server"), [("a b", ""), ("", ""), (NAME, "dns.example:53"), (NAME, "10.0.0.1:x")]
)
def test_a_wrong_name_or_server_is_refused(name: str, server: str) -> None:
    with pytest.raises(DiscoveryError):
        HeadlessPeers(name, port=1, server=server)


async def test_a_port_in_the_name_wins(zone: Zone) -> None:
    zone.records = {"A": ["10.0.0.1"]}
    peers = HeadlessPeers(NAME + ":7000", port=1, server=zone.address)
    assert await anext(peers.sets()) == {Peer("10.0.0.1", "10.0.0.1:7000")}
