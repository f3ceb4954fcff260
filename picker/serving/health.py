"""What gRPC health says: which names there are, and when each one serves. No input or output here."""

from __future__ import annotations

from collections.abc import Callable

from picker.serving.wire.health_pb2 import HealthCheckResponse

LIVENESS = "liveness"
READINESS = (
    "",
    "readiness",
    "envoy.service.ext_proc.v3.ExternalProcessor",
    "inference-extension",
)
"""Names that gateways and charts ask for; each one means readiness."""


class Health:
    """Serving or not. A replica lives from its start to its end; it is ready when `set_ready` said so last."""

    def __init__(self) -> None:
        self.ready = False
        self._listeners: set[Callable[[], None]] = set()

    def set_ready(self, ready: bool) -> None:
        """Say whether new requests are welcome: from here on in every answer and to every watcher."""
        if ready != self.ready:
            self.ready = ready
            for listener in tuple(self._listeners):
                listener()

    def status(self, service: str) -> HealthCheckResponse.ServingStatus.ValueType:
        """The status of a name; ``SERVICE_UNKNOWN`` for one that is none of ours."""
        if service == LIVENESS:
            return HealthCheckResponse.SERVING
        if service not in READINESS:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.SERVING if self.ready else HealthCheckResponse.NOT_SERVING

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each change; the returned function ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)
