"""A gateway whose every step is the test's to time: real picker processes over ext_proc, real engines behind them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from chaos import streams
from chaos.streams import Attempt, Logs
from picker.sim.programs import Replica

DECODE_SECONDS = 0.05
"""A token of an engine here."""


def completion(seconds: float) -> bytes:
    """The body of a request whose answer takes so long on an engine that has nothing else to do."""
    tokens = max(1, round(seconds / DECODE_SECONDS))
    return streams.completion(tokens, f"{uuid.uuid4()} what does the harbor look like")


class Gateway(streams.Gateway):
    """The suite's, which knows replicas as a cluster has them."""

    async def attempt(
        self,
        replica: Replica,
        body: bytes,
        *,
        request_id: str = "",
        only: Iterable[str] = (),
        held: bool = True,
    ) -> Attempt:
        """Ask a replica for a worker; see `chaos.streams.Gateway.open`."""
        return await self.open(replica.extproc, body, request_id=request_id, only=only, held=held)

    def logs(self, replica: Replica) -> Logs:
        """An access log stream to a replica."""
        return self.logs_to(replica.extproc)


__all__ = ["DECODE_SECONDS", "Attempt", "Gateway", "Logs", "completion"]
