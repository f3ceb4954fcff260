"""The admin port: who may read what, and what the pages say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from picker.admin.journal import Journal
from picker.admin.metrics import LABEL_CAP, Metrics
from picker.admin.server import AdminServer, Pages
from picker.settings import AdminSettings


@dataclass
class Counts:
    dropped: int = 3
    by_reason: dict[str, int] = field(default_factory=lambda: {"slow": 2})


@dataclass(frozen=True)
class Shown:
    name: str
    weight: int = 1

    def shown(self) -> dict[str, object]:
        return {"name": self.name}


def pages(**changed: object) -> Pages:
    level = {"name": "info"}
    values: dict[str, object] = {
        "metrics": lambda: b"m 1\n",
        "ready": lambda: (True, {}),
        "status": lambda: {"replica": "a"},
        "bookings": lambda: {"version": 1, "bookings": []},
        "why": lambda name: [{"worker": "w"}] if name == "known" else [],
        "log_level": lambda: level["name"],
        "set_log_level": lambda name: level.update(name=name),
    }
    return Pages(**(values | changed))  # type: ignore[arg-type]


@asynccontextmanager
async def admin(token: str = "", **changed: object) -> AsyncIterator[str]:
    server = AdminServer(
        AdminSettings(admin_host="127.0.0.1", metrics_port=0, admin_token=SecretStr(token)), pages(**changed)
    )
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def test_status_answers_on_loopback_and_why_knows_only_what_it_remembers() -> None:
    async with admin() as url, aiohttp.ClientSession() as http:
        async with http.get(f"{url}/status.json") as answer:
            assert (await answer.json()) == {"replica": "a"}
        async with http.get(f"{url}/why/known") as answer:
            assert (await answer.json())["decisions"] == [{"worker": "w"}]
        async with http.get(f"{url}/why/unknown") as answer:
            assert answer.status == 404


async def test_a_foreign_host_name_over_loopback_is_refused() -> None:
    async with admin() as url, aiohttp.ClientSession() as http:
        for page in ("/status.json", "/bookings.json", "/why/known", "/loglevel"):
            async with http.get(url + page, headers={"Host": "evil.example"}) as answer:
                assert answer.status == 403
        async with http.get(f"{url}/metrics", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 200


async def first_line(url: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.readline(), 10)
    finally:
        writer.close()


ODD_HOSTS = (
    b"127.0.0.1:99999999", b"[::1", b"::1", b"\xff", b"evil@127.0.0.1", b"127.0.0.1@evil", b"localhost/", b"a b",
    b"localhost.evil", b"[localhost]", b"127.0.0.1:", b"",
)  # fmt: skip


@pytest.mark.parametrize("host", ODD_HOSTS)
async def test_a_host_header_that_is_no_host_is_refused_and_no_fault_of_ours(host: bytes) -> None:
    async with admin() as url:
        answer = await first_line(url, b"GET /status.json HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert b" 403 " in answer or b" 400 " in answer


@pytest.mark.parametrize(
    "host", [b"localhost", b"LOCALHOST:9090", b"127.0.0.1:1", b"127.9.9.9", b"[::1]:9090"]
)
async def test_every_way_to_name_this_machine_opens_the_pages(host: bytes) -> None:
    async with admin() as url:
        answer = await first_line(url, b"GET /status.json HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert b" 200 " in answer


async def test_a_request_without_host_is_refused_and_no_name_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []

    def getfqdn(name: str = "") -> str:
        looked.append(name)
        return "localhost"

    monkeypatch.setattr("socket.getfqdn", getfqdn)
    async with admin() as url:
        assert b" 403 " in await first_line(url, b"GET /status.json HTTP/1.0\r\n\r\n")
    assert not looked


@pytest.mark.parametrize(
    "given", [b"Bearer \xff", b"Bearer \xed\xa0\x80", b"s3cret", b"Basic s3cret", b"bearer", b"Bearer"]
)
async def test_whatever_is_shown_instead_of_the_token_is_refused(given: bytes) -> None:
    async with admin(token="s3cret") as url:
        request = b"GET /status.json HTTP/1.1\r\nHost: a\r\nAuthorization: " + given + b"\r\n\r\n"
        assert b" 401 " in await first_line(url, request)


async def test_with_a_token_set_only_the_token_opens_the_pages() -> None:
    async with admin(token="s3cret") as url, aiohttp.ClientSession() as http:
        for header, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer s3cret"}, 200),
        ):
            async with http.get(f"{url}/status.json", headers=header) as answer:
                assert answer.status == status
        for open_page in ("/metrics", "/healthz", "/readyz"):
            async with http.get(url + open_page) as answer:
                assert answer.status == 200


async def test_readyz_says_what_is_waited_for() -> None:
    async with (
        admin(ready=lambda: (False, {"waiting_for": ["plane"]})) as url,
        aiohttp.ClientSession() as http,
        http.get(f"{url}/readyz") as answer,
    ):
        assert answer.status == 503
        assert (await answer.json())["waiting_for"] == ["plane"]


async def test_the_log_level_changes_only_by_a_json_post() -> None:
    async with admin() as url, aiohttp.ClientSession() as http:
        async with http.post(f"{url}/loglevel", data={"level": "debug"}) as answer:
            assert answer.status == 415
        async with http.post(f"{url}/loglevel", json={"level": "shout"}) as answer:
            assert answer.status == 400
        async with http.post(f"{url}/loglevel", json=[1]) as answer:
            assert answer.status == 400
        async with http.post(f"{url}/loglevel", json={"level": "debug"}) as answer:
            assert answer.status == 200
        async with http.get(f"{url}/loglevel") as answer:
            assert (await answer.json())["level"] == "debug"


def test_the_journal_finds_by_booking_and_by_request_and_stays_bounded() -> None:
    journal = Journal(3)
    for number in range(5):
        journal.note(f"b{number}", "same", Shown(f"b{number}"))
    assert journal.why("b0") == []
    assert [decision["name"] for decision in journal.why("same")] == ["b4", "b3", "b2"]
    assert journal.why("b4") == [{"name": "b4"}]
    journal.note("b5", "x" * 10_000, Shown("b5"))
    assert journal.why("x" * 10_000) == []


def test_a_large_pool_keeps_fewer_decisions() -> None:
    journal = Journal(10)
    for number in range(10):
        journal.note(f"b{number}", "", Shown(f"b{number}", weight=1000))
    assert [number for number in range(10) if journal.why(f"b{number}")] == [9]


def test_a_journal_of_none_keeps_none() -> None:
    journal = Journal(0)
    journal.note("b", "r", Shown("b"))
    assert journal.why("b") == []


def gathered(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
    }


def test_metrics_hold_the_fields_names_and_the_parts_counts() -> None:
    metrics = Metrics()
    try:
        metrics.gather(
            counts={"events": Counts},
            gauges=lambda: {"ready": 1.0},
            workers=lambda: {"booked_requests": {"w:1": 2.0}},
            pool_size=lambda: 4,
            scrapes=lambda: {"w:1": True},
            predictions=lambda: {"m": 0.25},
        )
        metrics.picked("hit", 0.002)
        metrics.refused("no_endpoints")
        found = gathered(metrics)
    finally:
        metrics.close()
    assert found["endpoint_picker_requests_total", (("result", "hit"),)] == 1
    assert found["endpoint_picker_decision_duration_seconds_count", ()] == 1
    assert found["endpoint_picker_pool_size", ()] == 4
    assert found["endpoint_picker_scrape_success", (("worker", "w:1"),)] == 1
    assert found["picker_worker_booked_requests", (("worker", "w:1"),)] == 2
    assert found["picker_events_dropped_total", ()] == 3
    assert found["picker_events_by_reason_total", (("reason", "slow"),)] == 2
    assert found["picker_refused_total", (("code", "no_endpoints"),)] == 1
    assert found["picker_ready", ()] == 1
    assert found["picker_predicted_confirmed_ratio", (("model", "m"),)] == 0.25


def test_the_worker_label_is_bounded_and_the_rest_is_summed() -> None:
    metrics = Metrics()
    try:
        many = {f"w:{n}": 1.0 for n in range(LABEL_CAP + 7)}
        metrics.gather(
            counts={}, gauges=dict, workers=lambda: {"booked_requests": many}, pool_size=int, scrapes=dict
        )
        found = gathered(metrics)
    finally:
        metrics.close()
    assert found["picker_worker_booked_requests", (("worker", "other"),)] == 7
    assert sum(1 for name, _ in found if name == "picker_worker_booked_requests") == LABEL_CAP + 1
