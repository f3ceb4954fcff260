"""Any replica answers for all, and `picker check` finds what is wrong: on a cluster of real processes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from picker.sim.cluster import Cluster, Layout
from picker.sim.programs import Replica

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SECONDS = 5.0
"""The deadline of a question to all peers: what answers at all answers well within it on a crowded machine."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three replicas, two engines; each test leaves it whole."""
    folder = tmp_path_factory.mktemp("peers")
    layout = Layout(replicas=3, workers=2, settings={"PICKER_PEERS_TIMEOUT_SECONDS": str(SECONDS)})
    async with Cluster(layout, logs=folder, ports_file=folder / "ports.json") as running:
        yield running


async def got(address: str, path: str, **headers: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
        http.get(f"http://{address}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def sent(cluster: Cluster) -> str:
    """The id of a request that was answered."""
    name = str(uuid.uuid4())
    body = {"model": "demo-8b", "prompt": "tell me of the harbor", "max_tokens": 1}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
        http.post(f"{cluster.envoy_url}/v1/completions", json=body, headers={"x-request-id": name}) as answer,
    ):
        assert answer.status == 200, await answer.text()
    return name


async def counted(replica: Replica, name: str) -> float:
    """A counter of a replica."""
    async with aiohttp.ClientSession() as http, http.get(f"http://{replica.admin}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")))


class Checked:
    """What `picker check` said."""

    def __init__(self, code: int, document: dict[str, Any]) -> None:
        self.code = code
        self.rows: list[dict[str, Any]] = document["checks"]

    def failed(self) -> set[tuple[str, str]]:
        """The failed checks, each with its replica."""
        return {(row["check"], row["where"]) for row in self.rows if row["state"] == "failed"}

    def of(self, check: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["check"] == check]


async def check(cluster: Cluster, *more: str) -> Checked:
    ports = cluster.folder / "ports.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "picker", "check", "--ports-file", str(ports), "--json", *more,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    assert process.returncode < 2, err.decode()
    return Checked(process.returncode, json.loads(out))


async def test_why_is_answered_by_the_replica_that_decided_whichever_is_asked(cluster: Cluster) -> None:
    deciders = set()
    for _ in range(6):
        name = await sent(cluster)
        pages = [await got(replica.admin, f"/why/{name}") for replica in cluster.replicas]
        assert [status for status, _ in pages] == [200] * 3
        told = {(tuple(page["answered_by"]), page["decisions"][0]["booking"]) for _, page in pages}
        assert len(told) == 1, "replicas tell different decisions of one request"
        ((decider,), _) = told.pop()
        assert pages[0][1]["decisions"][0]["replica"] == decider
        deciders.add(decider)
    assert deciders <= {replica.name for replica in cluster.replicas}
    assert len(deciders) > 1, "every request met one replica, so that nobody had to ask another"


async def test_all_replicas_stand_on_one_page_and_each_ones_status_is_a_click_away(cluster: Cluster) -> None:
    names = [replica.name for replica in cluster.replicas]
    status, page = await got(cluster.replicas[1].admin, "/peers.json")
    assert status == 200
    assert sorted(each["name"] for each in page["replicas"]) == names
    assert (page["asked_by"], page["unanswered"]) == (names[1], [])
    assert page["agree"] == {"settings_digest": True, "version": True, "plane_epoch": True}
    status, page = await got(cluster.replicas[1].admin, f"/replicas/{names[2]}/status.json")
    assert status == 200, page
    assert page["replica"]["name"] == names[2]
    assert page["peers_port"]["guard"] == "secret"


async def test_a_wrong_secret_is_refused_and_counted(cluster: Cluster) -> None:
    replica = cluster.replicas[0]
    name = 'picker_peers_refusals_total{reason="secret"}'
    before = await counted(replica, name)
    for path in ("/status.json", "/summary.json", "/why/x"):
        assert (await got(replica.peers, path, Authorization="Bearer 0123456789abcdef0123"))[0] == 401
    assert await counted(replica, name) == before + 3


async def test_a_peer_that_hangs_costs_the_deadline_and_is_named(cluster: Cluster) -> None:
    asked, frozen = cluster.replicas[0], cluster.replicas[1]
    await cluster.kill(frozen.name, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        status, page = await got(asked.admin, "/why/nobody-knows-this")
        took = time.monotonic() - begun
    finally:
        await cluster.kill(frozen.name, signal.SIGCONT)
    assert status == 404
    assert [(each["address"], each["reason"]) for each in page["unanswered"]] == [(frozen.peers, "deadline")]
    assert took < 2 * SECONDS
    await well(cluster)


async def test_a_cluster_in_good_order_passes_and_keeps_no_booking_of_it(cluster: Cluster) -> None:
    found = await check(cluster, "--wait", "20")
    assert (found.code, found.failed()) == (0, set())
    assert len(found.of("pick")) == len(found.of("why")) == 3
    for replica in cluster.replicas:
        _, page = await got(replica.admin, "/bookings.json")
        assert page["bookings"] == []
    name = found.of("why")[0]["reason"].rpartition(" ")[2]
    _, page = await got(cluster.replicas[0].admin, f"/why/{name}")
    assert page["decisions"][0]["request_id"].startswith("picker-check-")


async def test_a_check_with_another_secret_says_what_it_could_not_read(
    cluster: Cluster, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("another-secret-0123456789")
    found = await check(cluster, "--secret-file", str(secret))
    assert found.code == 0
    assert {row["state"] for row in found.of("status")} == {"skipped"}
    assert all("refused" in row["reason"] for row in found.of("status"))
    assert {row["state"] for row in found.of("pick")} == {"ok"}


async def test_a_killed_replica_is_missed_in_its_own_rows(cluster: Cluster) -> None:
    dead = cluster.replicas[2].name
    await cluster.kill(dead)
    try:
        failed = (await check(cluster)).failed()
    finally:
        await cluster.restart(dead)
    assert {("health", dead), ("status", dead), ("pick", dead), ("replicas", "")} <= failed
    assert not {(name, where) for name, where in failed if where not in ("", dead)} - {
        ("members", cluster.replicas[0].name)
    }
    await well(cluster)


@pytest.mark.parametrize(("server", "row"), [("valkey", "plane"), ("nats", "events")])
async def test_a_server_that_is_away_fails_its_row_at_every_replica_and_no_pick(
    cluster: Cluster, server: str, row: str
) -> None:
    await cluster.kill(server)
    try:
        await until(lambda: _shows(cluster, row))
        found = await check(cluster)
    finally:
        await cluster.restart(server)
    names = {replica.name for replica in cluster.replicas}
    failed = found.failed()
    assert {(row, name) for name in names} <= failed
    assert found.code == 1
    assert {each["state"] for each in found.of("pick")} == {"ok"}
    assert {name for name, _ in failed} <= {row, "plane directly", "plane epoch", "members"}
    await well(cluster)


async def _shows(cluster: Cluster, part: str) -> bool:
    pages = [await got(replica.admin, "/status.json") for replica in cluster.replicas]
    return all(page[part]["state"] == "away" for _, page in pages)


async def until(holds: Any, *, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.2)


async def well(cluster: Cluster) -> None:
    """Wait until everything is as it was."""
    found = await check(cluster, "--wait", "40")
    assert found.failed() == set()
