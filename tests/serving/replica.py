"""One replica's gateway side in a process of its own, always picking the same worker: to be killed by tests."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any

from picker.serving.seam import End, HttpRequest, LogEntry, Picked, Responded
from picker.serving.server import Server
from picker.settings import ServingSettings


class Fixed:
    """Picks the one worker and forgets everything."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._numbers = itertools.count(1)

    async def pick(self, request: HttpRequest) -> Picked:
        return Picked(self._worker, f"booking-{next(self._numbers)}")

    def responded(self, booking_id: str, response: Responded) -> None: ...

    def body_seen(self, booking_id: str) -> None: ...

    def over(self, booking_id: str, end: End) -> None: ...

    def logged(self, entries: Sequence[LogEntry]) -> None: ...


async def main(worker: str, hold: Any) -> None:
    settings = ServingSettings(grpc_host="127.0.0.1", grpc_port=0, grpc_health_port=0)
    server = Server(settings, Fixed(worker), hold=lambda: hold)
    await server.start()
    server.set_ready(True)
    sys.stdout.write(json.dumps({"port": server.port}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    import structlog

    from picker import heap

    heap.return_large_blocks()

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(sys.argv[1], sys.argv[2]))
