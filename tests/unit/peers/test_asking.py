"""Questions to peers that are gone, slow, strange or hostile: what it costs, and what is said."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from picker.neighbours import is_me
from picker.peers.asking import MOST_ASKED, AskError, Asking, Peer
from picker.peers.counts import Counts
from picker.peers.credentials import Credentials
from picker.peers.everywhere import Everywhere
from picker.peers.shapes import SUMMARY_BYTES, OddAnswerError, read_status, read_summary, read_why, shown
from picker.settings import PeersSettings
from tests.unit.peers.replicas import Answer, odd_peer, replica, summary_named

GOOD = orjson.dumps(shown(summary_named("b")))


class Asker:
    """The asking side of replica `a`."""

    def __init__(self, *addresses: str, seconds: float = 20.0, **settings: Any) -> None:
        self.counts = Counts()
        credentials = Credentials(PeersSettings(**settings), self.counts)
        self.asking = Asking(
            Peer(credentials, self.counts),
            peers=lambda: addresses,
            is_me=lambda address: address == "127.0.0.1:1",
            seconds=seconds,
            counts=self.counts,
        )
        self.everywhere = Everywhere(
            self.asking,
            summary=lambda: summary_named("a"),
            status=lambda: {"replica": {"name": "a"}},
            why=lambda name: [{"replica": "a"}] if name == "known-to-a" else [],
            counts=self.counts,
        )


@asynccontextmanager
async def asker(*addresses: str, **more: Any) -> AsyncIterator[Asker]:
    made = Asker(*addresses, **more)
    try:
        yield made
    finally:
        await made.asking.close()


async def why_not(answer: Answer, *, seconds: float = 20.0) -> tuple[str, str]:
    """The reason why a peer that answers so is not heard, and the words for it; the loop must stay free meanwhile."""
    async with odd_peer(answer) as address, asker(address, seconds=seconds) as ours:
        found = await ours.asking.summaries()
        (silent,) = found.silent
        assert not found.heard
        assert ours.counts.failures[silent.reason] == 1
        return silent.reason, silent.text


def telling(body: bytes, **more: Any) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, **more)

    return answer


def changed(**fields: Any) -> bytes:
    return orjson.dumps(orjson.loads(GOOD) | fields)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff" * 100,
        b"[" * 100_000,
        b'{"name": ' * 300 + b"1" + b"}" * 300,
        changed(name=7),
        changed(name="x" * 10_000),
        changed(members=["m"] * 2000),
        changed(plane=None),
        changed(index_entries=-1),
        changed(uptime_seconds=1e300),
        changed(workers={"known": "many"}),
        GOOD.replace(b'"epoch":7', b'"epoch":' + b"9" * 400),
    ],
)
async def test_an_answer_of_another_shape_is_odd(body: bytes) -> None:
    assert (await why_not(telling(body)))[0] == "odd"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "refused"), (403, "refused"), (500, "status"), (204, "status"), (302, "status")],
)
async def test_another_status_is_no_answer_and_redirects_are_not_followed(status: int, reason: str) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    assert (await why_not(answer))[0] == reason
    assert seen == ["/summary.json"]


async def test_an_endless_answer_is_left_at_its_bound() -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            sent += 65536

    reason, _ = await why_not(answer, seconds=10)
    assert reason == "too_large"
    assert sent < 100 * SUMMARY_BYTES


async def test_a_compressed_answer_is_never_unpacked() -> None:
    bomb = gzip.compress(b" " * 50_000_000 + GOOD)
    assert len(bomb) < SUMMARY_BYTES
    assert (await why_not(telling(bomb, headers={"Content-Encoding": "gzip"})))[0] == "odd"


async def test_a_peer_that_drips_costs_no_more_than_the_deadline() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    begun = time.monotonic()
    assert (await why_not(answer, seconds=0.3))[0] == "deadline"
    assert time.monotonic() - begun < 5


async def test_many_silent_peers_cost_one_deadline_together_and_each_is_named() -> None:
    listening = socket.create_server(("0.0.0.0", 0), backlog=256)
    port = listening.getsockname()[1]
    addresses = [f"127.0.0.{n}:{port}" for n in range(2, 2 + 100)]
    with listening:
        async with asker(*addresses, seconds=2.0) as ours:
            begun = time.monotonic()
            found = await ours.asking.summaries()
            took = time.monotonic() - begun
    assert {each.address for each in found.silent} == set(addresses)
    assert {each.reason for each in found.silent} == {"deadline"}
    assert ours.counts.failures["deadline"] == 100
    assert took < 3 * 2.0, "asked by turns they would have taken four deadlines"


async def test_no_more_than_so_many_peers_are_asked_and_the_rest_is_named() -> None:
    addresses = [f"127.0.0.1:{port}" for port in range(2, 2 + MOST_ASKED + 10)]
    async with asker(*addresses, seconds=30) as ours:
        found = await ours.asking.summaries()
    assert found.asked == MOST_ASKED
    assert sum(each.reason == "too_many" for each in found.silent) == 10
    assert ours.counts.asked == MOST_ASKED


async def test_without_anything_to_show_nobody_outside_this_machine_is_asked() -> None:
    async with asker("192.0.2.1:9092") as ours:
        found = await ours.asking.summaries()
    assert [each.reason for each in found.silent] == ["no_credentials"]


async def test_why_is_answered_here_first_then_by_whoever_knows() -> None:
    async with replica("b") as b, replica("c") as c, asker(b.address, c.address, "127.0.0.1:1") as ours:
        status, page = await ours.everywhere.why("known-to-a")
        assert (status, page["answered_by"], ours.counts.asked) == (200, ["a"], 0)
        status, page = await ours.everywhere.why("known-to-c")
        assert (status, page["answered_by"]) == (200, ["c"])
        assert page["decisions"] == [{"replica": "c", "worker": "w:1"}]
        assert (ours.counts.asked, ours.counts.unknown) == (2, 1)
        status, page = await ours.everywhere.why("nobody's")
        assert (status, page["asked"], page["unanswered"]) == (404, 2, [])


async def test_why_says_who_could_not_be_asked() -> None:
    async with replica("b") as b, asker(b.address, "127.0.0.1:9") as ours:
        status, page = await ours.everywhere.why("nobody's")
        assert status == 404
        assert [each["address"] for each in page["unanswered"]] == ["127.0.0.1:9"]
        assert page["unanswered"][0]["reason"] == "unreachable"
        status, page = await ours.everywhere.why("known-to-b")
        assert (status, page["answered_by"]) == (200, ["b"])
        assert len(page["unanswered"]) == 1


@pytest.mark.parametrize("name", ["../status.json", "a/b", "%2e%2e", "ü" * 60, "x\rHost: evil", "?q", "#f"])
async def test_an_id_is_an_id_whatever_is_in_it(name: str) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=404)

    async with odd_peer(answer) as address, asker(address) as ours:
        assert (await ours.everywhere.why(name))[0] == 404
    assert seen == [f"/why/{name}"]


async def test_an_id_longer_than_any_is_asked_of_nobody() -> None:
    async with replica("b") as b, asker(b.address) as ours:
        assert (await ours.everywhere.why("x" * 201))[0] == 404
        assert ours.counts.asked == 0


async def test_all_replicas_on_one_page_and_where_they_differ() -> None:
    other = telling(orjson.dumps(shown(summary_named("d", settings_digest="d2", members=["a", "d"]))))
    async with replica("b") as b, odd_peer(other) as d, asker(b.address, d, "127.0.0.1:9") as ours:
        page = await ours.everywhere.replicas()
    assert [each["name"] for each in page["replicas"]] == ["a", "b", "d"]
    assert page["replicas"][1]["address"] == b.address
    assert page["agree"] == {"settings_digest": False, "version": True, "plane_epoch": True}
    assert page["members_unheard"] == ["c"]
    assert [each["address"] for each in page["unanswered"]] == ["127.0.0.1:9"]


async def test_a_replica_with_two_addresses_is_one_and_one_of_another_pool_is_none_of_ours() -> None:
    twin = telling(orjson.dumps(shown(summary_named("b"))))
    foreign = telling(orjson.dumps(shown(summary_named("z", pool="other/pool"))))
    myself = telling(orjson.dumps(shown(summary_named("a"))))
    async with (
        replica("b") as b,
        odd_peer(twin) as b2,
        odd_peer(foreign) as z,
        odd_peer(myself) as me,
        asker(b.address, b2, z, me) as ours,
    ):
        page = await ours.everywhere.replicas()
    assert [each["name"] for each in page["replicas"]] == ["a", "b"]
    assert [(each["address"], each["reason"]) for each in page["unanswered"]] == [(z, "pool")]


async def test_the_status_of_any_replica_by_its_name() -> None:
    async with replica("b") as b, asker(b.address) as ours:
        assert await ours.everywhere.status("a") == (200, {"replica": {"name": "a"}})
        assert await ours.everywhere.status("b") == (200, {"replica": {"name": "b"}, "workers": []})
        status, page = await ours.everywhere.status("nobody")
        assert (status, page["replicas"]) == (404, ["a", "b"])


async def test_a_replica_whose_status_breaks_off_is_told_as_such() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=GOOD if request.path == "/summary.json" else b"{")

    async with odd_peer(answer) as address, asker(address) as ours:
        status, page = await ours.everywhere.status("b")
    assert status == 502
    assert address in page["error"]


async def test_a_name_that_two_claim_is_nobodys() -> None:
    twin = telling(orjson.dumps(shown(summary_named("b", incarnation="b-2"))))
    async with replica("b") as b, odd_peer(twin) as liar, asker(b.address, liar) as ours:
        status, page = await ours.everywhere.status("b")
    assert (status, sorted(page["addresses"])) == (409, sorted([b.address, liar]))


async def test_a_status_under_another_name_than_the_summarys_is_not_shown() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=GOOD if request.path == "/summary.json" else b'{"replica": {"name": "c"}}')

    async with odd_peer(answer) as address, asker(address) as ours:
        status, page = await ours.everywhere.status("b")
    assert status == 502
    assert set(page) == {"error"}


async def test_a_page_that_a_peer_has_not_is_a_failure_and_an_id_that_it_knows_not_is_none() -> None:
    async with odd_peer(telling(b"{}", status=404)) as address:
        counts = Counts()
        peer = Peer(Credentials(PeersSettings(), counts), counts)
        try:
            for ask in (peer.summary, peer.status):
                with pytest.raises(AskError, match="answered with an error"):
                    await ask(address, seconds=5)
            assert await peer.why(address, "x", seconds=5) == []
        finally:
            await peer.close()
    assert (counts.failures["status"], counts.unknown) == (2, 1)


def test_what_cannot_be_told_on_as_json_is_odd() -> None:
    deep = b"[" * 300 + b"]" * 300
    for read, body in (
        (read_status, b'{"replica": {"name": "b"}, "x": ' + deep + b"}"),
        (read_status, b'{"replica": "b"}'),
        (read_status, b'{"replica": {"name": 1}}'),
        (read_why, b'{"decisions": []}'),
        (read_why, b'{"decisions": [1]}'),
        (read_why, b'{"decisions": [' + b"{}," * 100 + b"{}]}"),
        (read_summary, b'{"name": "b"}'),
    ):
        with pytest.raises(OddAnswerError):
            read(body)


@pytest.mark.parametrize(
    ("address", "mine", "same"),
    [
        ("10.0.0.1:9092", "10.0.0.1", True),
        ("10.0.0.2:9092", "10.0.0.1", False),
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:2", "127.0.0.1:1", False),
        ("[fd00::1]:9092", "fd00:0::1", True),
        ("[fd00::1]:9092", "[fd00::1]:9092", True),
        ("10.0.0.1:9092", "", False),
    ],
)
def test_a_replica_knows_itself_among_its_peers(address: str, mine: str, same: bool) -> None:
    assert is_me(address, mine) is same


async def test_peers_are_asked_over_ipv6(secret_file: Path) -> None:
    secret = {"peers_secret_file": secret_file}
    async with replica("b", host="::1", **secret) as b, asker(f"[::1]:{b.port.port}", **secret) as ours:
        assert (await ours.everywhere.why("known-to-b"))[1]["answered_by"] == ["b"]
        assert b.counts.served == 1
