"""Memory of a replica under many large bodies that are never finished, through a real Envoy."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from tests.serving.conftest import OpenEnvoy, OpenWorker

REPLICA = Path(__file__).with_name("replica.py")
BUFFERED = 32 * 1024 * 1024
BODIES, SENT, DECLARED = 60, 3_000_000, 5_000_000
WASTE = 2.5
"""Times its bound that a process may grow at most; without one it would be the 180 MB that are sent, and waste."""


@asynccontextmanager
async def replica(worker: str) -> AsyncIterator[tuple[int, str]]:
    """Process id and address of a replica whose bodies may take 32 MiB together."""
    settings = {"PICKER_MAX_BUFFERED_BYTES": str(BUFFERED), "PICKER_BODY_TIMEOUT_SECONDS": "20"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(REPLICA),
        worker,
        "response",
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **settings},
    )
    assert process.stdout
    try:
        async with asyncio.timeout(30):
            yield process.pid, f"127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
    finally:
        process.kill()
        await process.wait()


def resident(pid: int, field: str = "VmRSS") -> int:
    """Bytes of memory that a process has, or with `VmHWM` had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


async def unfinished(address: str, enough: asyncio.Event) -> int:
    """Send a body's first megabytes and then nothing; the status that came meanwhile, 0 for none."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answer = asyncio.ensure_future(reader.readline())
    try:
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {DECLARED}\r\n\r\n".encode()
        )
        for _ in range(SENT // 100_000):
            writer.write(b"x" * 100_000)
            await asyncio.sleep(
                0.15
            )  # slower than the replica reads: what waits for it is gRPC's and bounded by windows
        await asyncio.wait(
            {answer, asyncio.ensure_future(enough.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        return int((await answer).split()[1]) if answer.done() else 0
    except ConnectionError:
        return int((await answer).split()[1])
    finally:
        answer.cancel()
        writer.transport.abort()


async def test_many_large_unfinished_bodies_take_no_more_than_their_bound_and_leave_room_for_others(
    open_worker: OpenWorker, open_envoy: OpenEnvoy, tmp_path: Path
) -> None:
    async with (
        open_worker() as worker,
        replica(worker.address) as (pid, address),
        open_envoy(tmp_path, [address], [("FULL_DUPLEX_STREAMED", "NONE")]) as urls,
        aiohttp.ClientSession() as client,
    ):
        (url,) = urls.values()

        async def small() -> int:
            async with client.post(url, json={"prompt": "x" * 2_000}) as response:
                return response.status

        assert await small() == 200
        before, enough = resident(pid), asyncio.Event()
        bodies = [asyncio.create_task(unfinished(url.removeprefix("http://"), enough)) for _ in range(BODIES)]
        others = [await small() for _ in range(100)]
        async with asyncio.timeout(30):
            while sum(task.done() for task in bodies) < BODIES - BUFFERED // SENT:
                others.append(await small())
        enough.set()
        refused = Counter(await asyncio.gather(*bodies))
        assert set(others) == {200}
        assert set(refused) == {0, 429}
        # seven eighths of the bound are theirs
        assert refused[0] <= BUFFERED * 7 // 8 // SENT
        assert resident(pid, "VmHWM") - before <= BUFFERED * WASTE
