"""Tokens for the admin port: what is asked, what is believed and for how long, and what happens without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from discovery.access import Review, ReviewError
from discovery.backends import open_reviewer
from discovery.kubernetes.reviews import RIGHTS, TOKENS
from picker.admin import protection as protecting
from picker.admin.protection import MAX_READERS, MAX_STRANGERS, Protection, Verdict
from picker.admin.server import AdminServer
from picker.settings import AdminSettings
from tests.unit.admin.test_admin import pages
from tests.unit.discovery.kubernetes.conftest import ApiServer, kubeconfig

LIFE = 60.0


@dataclass
class Server:
    """Rights by token, and how the API server behaves."""

    rights: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    fault: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    hold: asyncio.Event | None = None
    closed: bool = False

    async def review(self, token: str, *, path: str, verb: str) -> Review:
        self.asked.append((token, path, verb))
        if self.hold is not None:
            await self.hold.wait()
        if self.fault:
            raise ReviewError(self.fault)
        rights = self.rights.get(token)
        return Review(rights is not None, (path, verb) in (rights or ()), "somebody")

    async def close(self) -> None:
        self.closed = True


class World:
    """A protection on a clock that the test turns."""

    def __init__(self, **rights: set[tuple[str, str]]) -> None:
        self.now = 1000.0
        self.server = Server({"good": {("/metrics", "get")}, **rights})
        self.protection = Protection(self.server, life=LIFE, clock=lambda: self.now)

    async def verdict(self, token: str = "good", path: str = "/metrics", scheme: str = "Bearer") -> Verdict:
        return await self.protection.judge(f"{scheme} {token}", path=path, verb="get")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.protection.close()
    assert made.server.closed


async def test_an_answer_is_believed_for_half_its_life_without_asking(world: World) -> None:
    for _ in range(5):
        assert await world.verdict() is Verdict.ALLOWED
    assert len(world.server.asked) == 1
    world.now += LIFE / 2
    assert await world.verdict() is Verdict.ALLOWED
    assert len(world.server.asked) == 2


async def test_a_token_taken_back_is_refused_half_a_life_later(world: World) -> None:
    assert await world.verdict() is Verdict.ALLOWED
    world.server.rights.clear()
    world.now += LIFE / 2
    assert await world.verdict() is Verdict.UNKNOWN
    assert await world.verdict() is Verdict.UNKNOWN
    assert len(world.server.asked) == 2


async def test_a_stranger_who_was_let_in_meanwhile_is_allowed_half_a_life_later(world: World) -> None:
    assert await world.verdict("new") is Verdict.UNKNOWN
    world.server.rights["new"] = {("/metrics", "get")}
    world.now += LIFE / 2
    assert await world.verdict("new") is Verdict.ALLOWED


async def test_a_right_to_one_page_is_none_to_another(world: World) -> None:
    assert await world.verdict() is Verdict.ALLOWED
    assert await world.verdict(path="/status.json") is Verdict.FORBIDDEN
    assert await world.verdict() is Verdict.ALLOWED


async def test_while_the_server_is_away_what_is_known_stands_for_its_life_and_no_longer(world: World) -> None:
    assert await world.verdict() is Verdict.ALLOWED
    world.server.fault = "away"
    world.now += LIFE - 1
    assert await world.verdict() is Verdict.ALLOWED
    world.now += 1
    with capture_logs() as lines:
        assert await world.verdict() is Verdict.AWAY
    assert lines == []
    counts = world.protection.counts
    assert (counts.stood, counts.away, counts.unanswered) == (1, 1, 2)
    assert world.protection.status()["fault"] == "away"
    world.server.fault = ""
    assert await world.verdict() is Verdict.ALLOWED
    assert world.protection.status()["fault"] is None


async def test_an_unknown_token_is_refused_with_the_reason_while_the_server_is_away(world: World) -> None:
    world.server.fault = "the API server is away: refused"
    with capture_logs() as lines:
        for _ in range(3):
            assert await world.verdict() is Verdict.AWAY
    assert [line["reason"] for line in lines] == ["the API server is away: refused"]
    assert world.protection.reason == "the API server is away: refused"


async def test_a_server_that_never_answers_is_waited_for_no_longer_than_its_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protecting, "QUESTION_SECONDS", 0.05)
    world.server.hold = asyncio.Event()
    assert await world.verdict() is Verdict.AWAY
    assert "did not answer within 0.05 seconds" in world.protection.reason


@pytest.mark.parametrize(
    "authorization", ["", "good", "Basic good", "Bearer", "Bearer ", "Bearer a b", "Bearer é", "Bearer a\x00b",
                      "Bearer " + "x" * 8193],
)  # fmt: skip
async def test_what_cannot_be_a_token_is_asked_of_nobody(world: World, authorization: str) -> None:
    assert await world.protection.judge(authorization, path="/metrics", verb="get") is Verdict.UNKNOWN
    assert world.server.asked == []


async def test_the_scheme_is_read_in_any_case(world: World) -> None:
    assert await world.verdict(scheme="bearer") is Verdict.ALLOWED


async def test_requests_that_come_together_share_one_question_and_one_that_leaves_takes_it_from_nobody(
    world: World,
) -> None:
    world.server.hold = asyncio.Event()
    waiting = [asyncio.create_task(world.verdict()) for _ in range(5)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    world.server.hold.set()
    assert await asyncio.gather(*waiting[1:]) == [Verdict.ALLOWED] * 4
    assert len(world.server.asked) == 1


async def test_guesses_are_asked_about_a_few_at_a_time_and_push_no_reader_out(world: World) -> None:
    assert await world.verdict() is Verdict.ALLOWED
    for number in range(1000):
        await world.verdict(f"guess-{number}")
    assert world.protection.counts.busy > 900
    assert len(world.server.asked) < 1 + protecting.STRANGERS_AT_ONCE + 1
    world.now += LIFE
    for number in range(1000):
        await world.verdict(f"again-{number}")
    assert await world.verdict() is Verdict.ALLOWED


async def test_questions_at_one_time_are_bounded(world: World) -> None:
    world.server.hold = asyncio.Event()
    waiting = [asyncio.create_task(world.verdict(f"guess-{number}")) for number in range(40)]
    await asyncio.sleep(0.01)
    assert len(world.server.asked) == protecting.PARALLEL
    world.server.hold.set()
    found = await asyncio.gather(*waiting)
    assert found.count(Verdict.UNKNOWN) == protecting.MAX_ASKING
    assert found.count(Verdict.BUSY) == 40 - protecting.MAX_ASKING


async def test_guesses_that_a_slow_server_is_long_about_keep_no_reader_waiting(world: World) -> None:
    assert await world.verdict() is Verdict.ALLOWED
    world.now += LIFE
    world.server.hold = asyncio.Event()
    guesses = [asyncio.create_task(world.verdict(f"guess-{number}")) for number in range(40)]
    await asyncio.sleep(0)
    reader = asyncio.create_task(world.verdict())
    await asyncio.sleep(0.01)
    assert world.server.asked.count(("good", "/metrics", "get")) == 2
    world.server.hold.set()
    assert await reader is Verdict.ALLOWED
    assert Verdict.ALLOWED not in await asyncio.gather(*guesses)


async def test_answers_kept_are_bounded_and_hold_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protecting, "STRANGERS_AT_ONCE", 1e9)
    world = World(**{f"reader-{number}": {("/metrics", "get")} for number in range(MAX_READERS + 9)})
    for number in range(MAX_READERS + 9):
        assert await world.verdict(f"reader-{number}") is Verdict.ALLOWED
    for number in range(MAX_STRANGERS + 7):
        assert await world.verdict(f"stranger-{number}") is Verdict.UNKNOWN
    known = world.protection._known
    assert len(known) == MAX_READERS + MAX_STRANGERS
    assert world.protection.counts.forgotten == 9 + 7
    kept = repr(known._readers) + repr(known._strangers)
    assert "reader-" not in kept
    assert "stranger-" not in kept
    await world.protection.close()


async def test_what_is_counted_adds_up_to_the_requests(world: World) -> None:
    await world.verdict()
    await world.verdict("nobody")
    await world.verdict(path="/bookings.json")
    counts = world.protection.counts
    assert (counts.allowed, counts.unknown, counts.forbidden) == (1, 1, 1)
    assert all(isinstance(getattr(counts, one.name), int) for one in fields(counts))


# on the port


@asynccontextmanager
async def port(protection: Protection, token: str = "") -> AsyncIterator[Any]:
    """A client of the port; by a foreign Host name, so that it does not count as loopback."""
    settings = AdminSettings(admin_host="127.0.0.1", metrics_port=0, admin_token=SecretStr(token))
    server = AdminServer(settings, pages(), protection=protection)
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http:

            async def get(path: str, bearer: str = "", *, host: str = "picker.llama:9090") -> tuple[int, Any]:
                headers = {"Host": host} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
                async with http.get(path, headers=headers) as answer:
                    return answer.status, answer.headers

            yield get
    finally:
        await server.stop()


async def test_metrics_ask_for_a_token_and_health_does_not(world: World) -> None:
    async with port(world.protection) as get:
        status, headers = await get("/metrics")
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert (await get("/metrics", "good"))[0] == 200
        assert (await get("/metrics", "nobody"))[0] == 401
        assert (await get("/status.json", "good"))[0] == 403
        assert (await get("/healthz"))[0] == 200
        assert (await get("/readyz"))[0] == 200


async def test_every_decision_is_one_page_to_be_allowed(world: World) -> None:
    world.server.rights["good"] = {("/why/", "get")}
    async with port(world.protection) as get:
        assert (await get("/why/known", "good"))[0] == 200
        assert (await get("/why/unknown", "good"))[0] == 404
    assert [path for _, path, _ in world.server.asked] == ["/why/"]


async def test_loopback_and_the_operators_own_token_open_the_pages_without_the_server(world: World) -> None:
    world.server.fault = "away"
    async with port(world.protection) as get:
        assert (await get("/metrics", host="127.0.0.1"))[0] == 200
        assert (await get("/status.json", host="127.0.0.1"))[0] == 200
        status, headers = await get("/metrics", "good")
        assert (status, headers["Retry-After"]) == (503, "1")
    async with port(world.protection, token="s3cret") as get:
        assert (await get("/metrics", "s3cret"))[0] == 200
        assert (await get("/status.json", "s3cret"))[0] == 200
        assert (await get("/metrics", host="127.0.0.1"))[0] == 401


async def test_an_api_server_judges_scrapes_until_it_is_away_for_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("kubernetes.aio.client")  # takes long on a busy machine
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    server, now = ApiServer(), [1000.0]
    server.creates[TOKENS] = lambda entry: {
        "status": {"authenticated": entry["spec"]["token"] == "good", "user": {"username": "prometheus"}}
    }
    server.creates[RIGHTS] = lambda entry: {
        "status": {"allowed": entry["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}}
    }
    await server.start()
    reviewer = open_reviewer(kubeconfig=kubeconfig(tmp_path / "k", {"here": server}))
    protection = Protection(reviewer, life=LIFE, clock=lambda: now[0])
    try:
        async with port(protection) as get:
            assert (await get("/metrics", "good"))[0] == 200
            assert (await get("/metrics", "stolen"))[0] == 401
            assert (await get("/status.json", "good"))[0] == 403
            await server.stop()
            now[0] += LIFE - 1
            assert (await get("/metrics", "good"))[0] == 200
            now[0] += 1
            assert (await get("/metrics", "good"))[0] == 503
            assert "away" in protection.reason
    finally:
        await protection.close()
        await server.stop()
