"""Sources are chosen by name."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from discovery import DiscoveryError, Peer, open_peers
from discovery.backends import PEERS, WORKERS, open_source
from discovery.headless import HeadlessPeers
from discovery.kubernetes.peers import SlicePeers
from discovery.static import StaticPeers


async def test_fixed_peers_override_the_service() -> None:
    source = open_peers(static=("a", "b:7000", "[::1]"), service="picker.svc", port=9000)
    assert isinstance(source, StaticPeers)
    async for peers in source.sets():
        assert peers == {Peer("a", "a:9000"), Peer("b", "b:7000"), Peer("::1", "[::1]:9000")}
        break
    assert source.age(time.monotonic()) == 0


async def test_nobody_is_named_nobody_is_found() -> None:
    async for peers in open_peers().sets():
        assert peers == frozenset()
        break


def test_a_service_is_looked_up() -> None:
    assert isinstance(open_peers(service="picker.default.svc", dns_server="127.0.0.1:5353"), HeadlessPeers)


def test_a_source_that_is_named_goes_before_what_is_set() -> None:
    assert isinstance(open_peers(source="endpointslices", static=("a",), service="p.ns.svc"), SlicePeers)
    assert isinstance(open_peers(source="dns", static=("a",), service="p.ns.svc"), HeadlessPeers)
    assert isinstance(open_peers(source="static", service="p.ns.svc"), StaticPeers)


@pytest.mark.parametrize("source", ["dns", "endpointslices"])
def test_a_source_without_the_service_that_it_reads_is_refused(source: str) -> None:
    with pytest.raises(DiscoveryError, match=f"'{source}' needs the name of the headless Service"):
        open_peers(source=source)


def test_a_wrong_fixed_peer_is_named() -> None:
    with pytest.raises(DiscoveryError, match="'b:99999'"):
        open_peers(static=("a", "b:99999"))


def test_a_name_nobody_knows_is_answered_with_the_right_ones() -> None:
    with pytest.raises(DiscoveryError, match="'etcd'; there are dns, endpointslices, static"):
        open_source(PEERS, "etcd")


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(DiscoveryError, match="needs nowhere_at_all"):
        open_source({"x": "nowhere_at_all:X"}, "x")


@pytest.mark.parametrize(("table", "name"), [(PEERS, "dns"), (WORKERS, "file")])
def test_every_name_leads_to_a_source(table: dict[str, str], name: str) -> None:
    options = {"dns": (("a.svc",), {"port": 1}), "file": (("x",), {})}[name]
    source = open_source(table, name, *options[0], **options[1])
    assert source.counts.looks == 0


def test_a_client_library_is_imported_only_when_its_source_is_chosen() -> None:
    code = "import sys, picker.wiring; sys.exit(bool({'dns.resolver', 'kubernetes'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
