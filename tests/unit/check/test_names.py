"""Names as a real DNS server has them."""

from __future__ import annotations

from chaos.injectors.dns import NameServer
from picker.check.places import find
from picker.check.rows import State
from picker.settings import load

ANSWERS = {
    "epp-peers.llama.svc": ("127.0.0.2", "127.0.0.3", "::1"),
    "epp.llama.svc": ("127.0.0.2", "127.0.0.3"),
    "cluster-ip.llama.svc": ("10.96.0.9",),
}


async def test_names_are_looked_up_where_replicas_look_them_up() -> None:
    server = await NameServer.open(listen="127.0.0.1:0", answers=dict(ANSWERS))
    try:
        settings = load({}, dns_server=server.listen)
        found = await find(settings, service="epp.llama.svc", peer_service="epp-peers.llama.svc", seconds=10)
        assert [place.peers for place in found.places] == ["127.0.0.2:9092", "127.0.0.3:9092", "[::1]:9092"]
        assert [row.state for row in found.rows] == [State.OK, State.OK]
        assert "3 addresses" in found.rows[0].reason
        found = await find(
            settings, service="cluster-ip.llama.svc", peer_service="epp-peers.llama.svc", seconds=10
        )
        assert found.rows[1].state is State.WARNING
        found = await find(settings, service="", peer_service="nobody.llama.svc", seconds=10)
        assert found.places == ()
        assert found.rows[0].state is State.FAILED
    finally:
        await server.close()


async def test_a_dns_server_that_is_away_fails_in_time() -> None:
    settings = load({}, dns_server="127.0.0.1:9")
    found = await find(settings, service="", peer_service="epp-peers.llama.svc", seconds=0.5)
    assert [row.state for row in found.rows] == [State.FAILED]
