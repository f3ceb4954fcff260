"""The name server answers as a real one does, for the product's own look-ups, and lies on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import dns.asyncresolver
import dns.message
import dns.query
import dns.rdatatype
import dns.resolver
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.injectors.dns import NameServer, Resolution, empty, nxdomain, servfail, silent, stale
from discovery.headless import HeadlessPeers
from tests.unit.chaos.injectors.conftest import Stage

NAME = "peers.test"


@pytest.fixture
async def server(stage: Stage) -> AsyncIterator[NameServer]:
    opened = await NameServer.open(
        listen="127.0.0.1:0", answers={NAME: ("127.0.0.1", "127.0.0.2", "::1")}, ttl=7
    )
    stage.names = opened
    yield opened
    await opened.close()


def resolver(server: NameServer) -> dns.asyncresolver.Resolver:
    made = dns.asyncresolver.Resolver(configure=False)
    host, _, port = server.listen.rpartition(":")
    made.nameservers, made.port = [host], int(port)
    made.lifetime = 1.0
    return made


async def addresses(server: NameServer, kind: str = "A", *, tcp: bool = False) -> list[str]:
    answer = await resolver(server).resolve(f"{NAME}.", kind, tcp=tcp, raise_on_no_answer=False)
    return sorted(record.to_text() for record in answer.rrset or ())


@pytest.mark.parametrize("tcp", [False, True])
async def test_both_families_are_answered_over_udp_and_tcp_with_the_ttl(
    server: NameServer, tcp: bool
) -> None:
    assert await addresses(server, tcp=tcp) == ["127.0.0.1", "127.0.0.2"]
    assert await addresses(server, "AAAA", tcp=tcp) == ["::1"]
    answer = await resolver(server).resolve(f"{NAME}.", "A", tcp=tcp)
    assert answer.rrset is not None
    assert answer.rrset.ttl == 7
    assert server.counts.answered == 3


async def test_a_name_that_is_not_ours_does_not_exist(server: NameServer) -> None:
    with pytest.raises(dns.resolver.NXDOMAIN):
        await resolver(server).resolve("other.test.", "A")
    assert server.counts.unknown == 1


async def test_an_answer_too_long_for_a_datagram_comes_whole_over_tcp(server: NameServer) -> None:
    server.answers[NAME] = tuple(f"127.0.{a}.{b}" for a in range(4) for b in range(1, 101))
    assert len(await addresses(server)) == 400


async def test_every_mood_is_what_a_resolver_sees(server: NameServer) -> None:
    server.mood = "empty"
    assert await addresses(server) == []
    server.lie({NAME: ("127.0.0.9",)})
    assert await addresses(server) == ["127.0.0.9"]
    server.mood = "nxdomain"
    with pytest.raises(dns.resolver.NXDOMAIN):
        await addresses(server)
    server.mood = "servfail"
    with pytest.raises(dns.resolver.NoNameservers):
        await addresses(server)
    server.mood = "silent"
    with pytest.raises(dns.resolver.LifetimeTimeout):
        await addresses(server)
    assert server.counts.unanswered > 0
    server.mood = "answers"
    assert await addresses(server) == ["127.0.0.1", "127.0.0.2"]


async def test_replicas_see_different_peers_where_only_some_questions_are_lied_to(
    server: NameServer, stage: Stage
) -> None:
    asking = asyncio.create_task(_ask_again_and_again(server))
    try:
        async with stale("127.0.0.9", every=3).into(stage):
            told = [await addresses(server) for _ in range(9)]
        assert ["127.0.0.9"] in told
        assert ["127.0.0.1", "127.0.0.2"] in told
        assert stage.phases[-1] == "healed"
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert [await addresses(server) for _ in range(3)] == [["127.0.0.1", "127.0.0.2"]] * 3


async def _ask_again_and_again(server: NameServer) -> None:
    while True:
        await addresses(server)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("fault", "during"),
    [
        (stale("127.0.0.9"), {"127.0.0.9"}),
        (empty(), None),
        (nxdomain(), None),
        (servfail(), None),
        (silent(), None),
    ],
    ids=lambda value: value.kind if isinstance(value, Resolution) else "",
)
async def test_peers_follow_the_lie_only_where_it_names_somebody_and_the_truth_again_after_it(
    server: NameServer, stage: Stage, fault: Resolution, during: set[str] | None
) -> None:
    source = HeadlessPeers(NAME, port=9002, server=server.listen, refresh_seconds=1.0)
    known: set[str] = set()

    async def follow() -> None:
        async for peers in source.sets():
            known.clear()
            known.update(peer.address.rpartition(":")[0] for peer in peers)

    async def until(wanted: set[str]) -> None:
        async with asyncio.timeout(10):
            while known != wanted:  # noqa: ASYNC110 - a set tells nobody that it has changed
                await asyncio.sleep(0.02)

    following = asyncio.create_task(follow())
    truth = {"127.0.0.1", "127.0.0.2", "[::1]"}
    try:
        await until(truth)
        async with fault.into(stage):
            assert stage.phases == ["begin", "seen"]
            if during is not None:
                await until(during)
            else:
                assert known == truth
        assert stage.phases[-1] == "healed"
        await until(truth)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@given(st.binary(max_size=80))
def test_noise_is_answered_by_nothing_or_a_message(noise: bytes) -> None:
    server = NameServer(listen="", answers={NAME: ("127.0.0.1",)})
    answer = server.answer(noise)
    if answer is not None:
        dns.message.from_wire(answer)
