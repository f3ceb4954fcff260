"""What a request says of itself decides where it goes: pictures, adapters, labels; through a real Envoy."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from picker.sim.cluster import Cluster, Layout
from picker.sim.engine.options import Options
from picker.sim.engine.server import Server
from picker.sim.model import MODEL

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

ADAPTER = "sql-adapter"
SETTINGS = {
    "PICKER_CRITERIA": "labels",
    "PICKER_LABEL_AFFINITY": "x-zone=zone,x-tier=tier:64,x-kind=kind",
    "PICKER_MODELS_SECONDS": "0.5",
}


class Pool:
    """Two engines with KV events, and one more that alone holds an adapter, as its list of models says."""

    def __init__(self, cluster: Cluster, client: aiohttp.ClientSession, holder: Server) -> None:
        self.cluster, self.client = cluster, client
        self.holder = holder.url.removeprefix("http://")
        self.addresses = {worker.name: worker.address for worker in cluster.workers} | {"holder": self.holder}

    async def list_workers(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Let the replicas have these workers."""
        workers = [
            {"address": self.addresses[name], "rank": 0, "labels": dict(given)}
            for name, given in labels.items()
        ]
        draft = self.cluster.workers_file.with_suffix(".new")
        draft.write_text(json.dumps({"workers": workers}))
        draft.replace(self.cluster.workers_file)
        names = {self.addresses[name] for name in labels}
        async with asyncio.timeout(30):
            known: list[set[str]] = []
            while known != [names] * len(self.cluster.replicas):
                await asyncio.sleep(0.1)
                known = [{each["name"] for each in page["workers"]} for page in await self.statuses()]

    async def statuses(self) -> list[dict[str, Any]]:
        pages = []
        for replica in self.cluster.replicas:
            async with self.client.get(f"http://{replica.admin}/status.json") as response:
                pages.append(await response.json())
        return pages

    async def numbers(self, *names: str) -> dict[str, float]:
        """Metrics of all replicas together."""
        found = dict.fromkeys(names, 0.0)
        for replica in self.cluster.replicas:
            async with self.client.get(f"http://{replica.admin}/metrics") as response:
                for line in (await response.text()).splitlines():
                    name, _, value = line.removeprefix("picker_").partition(" ")
                    if line.startswith("picker_") and name in found:
                        found[name] += float(value)
        return found

    async def ask(
        self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        """Status, the engine that answered, and the answer."""
        url = f"{self.cluster.envoy_url}/v1/chat/completions"
        content = {
            "model": MODEL,
            "max_tokens": 1,
            "messages": [{"role": "user", "content": uuid.uuid4().hex}],
            **body,
        }
        async with self.client.post(url, json=content, headers=dict(headers or {})) as response:
            return response.status, response.headers.get("x-sim-worker", ""), await response.text()

    async def spread(self, times: int, **given: Any) -> Counter[tuple[int, str]]:
        """Where so many requests went, with which status."""
        headers = given.pop("headers", {})
        return Counter([(await self.ask(given, headers))[:2] for _ in range(times)])


LABELS: Mapping[str, Mapping[str, str]] = {
    "engine-0": {"zone": "a", "tier": "gold", "kind": "followed"},
    "engine-1": {"zone": "b", "kind": "followed"},
    "holder": {"zone": "c"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Pool]:
    holder = Server(Options(name="holder", model=MODEL, loras=(ADAPTER,), time_scale=10.0))
    await holder.start()
    layout = Layout(replicas=2, workers=2, engine_options=("--time-scale", "10"), settings=SETTINGS)
    try:
        timeout = aiohttp.ClientTimeout(total=60)
        async with Cluster(layout) as cluster, aiohttp.ClientSession(timeout=timeout) as client:
            yield Pool(cluster, client, holder)
    finally:
        await holder.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def pool(running: Pool) -> Pool:
    await running.list_workers(LABELS)
    return running


def picture(data: bytes, question: str) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    return {"messages": [{"role": "user", "content": parts}]}


async def test_equal_pictures_go_to_the_same_worker_whatever_is_asked_of_them(pool: Pool) -> None:
    firsts: set[str] = set()
    for _ in range(6):
        data, asked = uuid.uuid4().bytes * 300, Counter[str]()
        for question in ("What is it?", "Who made it?", "Is it green?", "Where is it?"):
            status, worker, text = await pool.ask(picture(data, question), {"x-kind": "followed"})
            assert status == 200, text
            asked[worker] += 1
            # the replicas tell each other over NATS
            await asyncio.sleep(0.2)
        assert len(asked) == 1, asked
        firsts |= asked.keys()
    assert firsts == {"engine-0", "engine-1"}, "pictures that differ are spread"


async def test_a_request_for_an_adapter_goes_to_the_worker_that_holds_it(pool: Pool) -> None:
    async with asyncio.timeout(30):
        listed: list[Any] = [[]]
        while not all(ADAPTER in names for names in listed):
            listed = [
                worker["adapters"]["listed"] or []
                for page in await pool.statuses()
                for worker in page["workers"]
                if worker["name"] == pool.holder and worker["adapters"]
            ] or [[]]
            await asyncio.sleep(0.1)
    assert await pool.spread(12, model=ADAPTER) == {(200, "holder"): 12}
    plain = await pool.spread(24)
    assert {worker for _, worker in plain} >= {"engine-0", "engine-1"}, plain


async def test_where_nobody_holds_an_adapter_any_more_the_request_goes_to_the_others(pool: Pool) -> None:
    await pool.list_workers({name: labels for name, labels in LABELS.items() if name != "holder"})
    statuses = {status for status, _ in await pool.spread(6, model=ADAPTER)}
    assert statuses == {404}, "an engine says that it knows no such model, not the picker"


async def test_labels_bind_a_request_or_make_others_dearer(pool: Pool) -> None:
    for zone, worker in (("a", "engine-0"), ("b", "engine-1"), ("c", "holder")):
        assert await pool.spread(6, headers={"x-zone": zone}) == {(200, worker): 6}
    assert await pool.spread(6, headers={"x-tier": "gold"}) == {(200, "engine-0"): 6}
    # a price is no bar: nobody has that tier
    assert {status for status, _ in await pool.spread(3, headers={"x-tier": "silver"})} == {200}


async def test_labels_that_nobody_has_are_refused_with_the_criterions_name_and_no_more(pool: Pool) -> None:
    status, _, text = await pool.ask({}, {"x-zone": "nowhere"})
    error = json.loads(text)["error"]
    assert (status, error["code"]) == (503, "no_endpoints")
    assert "labels" in error["message"]
    assert "nowhere" not in text


@pytest.mark.parametrize("name", [b"x-request-id", b"x-zone", b"user-agent", b"traceparent", b"x-anything"])
async def test_a_header_that_is_no_text_costs_no_request(pool: Pool, name: bytes) -> None:
    body = json.dumps({"model": MODEL, "prompt": "how are you", "max_tokens": 1}).encode()
    host, _, port = pool.cluster.envoy.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
        b"%s: \xff\xfe\xe9\r\ncontent-length: %d\r\n\r\n%s" % (name, len(body), body)
    )
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    status = int(answer.split(b" ", 2)[1])
    assert status == (503 if name == b"x-zone" else 200), answer
    async with asyncio.timeout(30):
        bookings = 1.0
        while bookings:
            await asyncio.sleep(0.2)
            numbers = await pool.numbers("serving_unreadable_total", "bookings_own", "bookings_draining")
            bookings = numbers["bookings_own"] + numbers["bookings_draining"]
    assert numbers["serving_unreadable_total"] == 0, "neither ext_proc nor the access log lost a message"
