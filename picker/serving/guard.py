"""Who may ask: streams of clients whose certificate carries none of the allowed names are refused."""

from __future__ import annotations

from typing import Any

import grpc
import structlog

from picker.serving.counts import Counts
from picker.tls import Allowed, names_shown

log = structlog.get_logger(__name__)

REFUSAL = "the client's certificate carries none of the names in PICKER_TLS_CLIENT_NAMES"


class Guard(grpc.GenericRpcHandler):
    """One service behind a check of the client's certificate. Refused streams end with PERMISSION_DENIED."""

    def __init__(self, service: grpc.GenericRpcHandler, allowed: Allowed, counts: Counts) -> None:
        self._service = service
        self._allowed = allowed
        self._counts = counts
        self._said = False

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The service's handler with the check before it."""
        handler: Any = self._service.service(details)
        if handler is None:
            return None
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._checked(handler.stream_stream))
        return grpc.stream_unary_rpc_method_handler(self._checked(handler.stream_unary))

    def _checked(self, behaviour: Any) -> Any:
        async def checked(requests: Any, context: grpc.aio.ServicerContext[bytes, bytes]) -> Any:
            peer = context.auth_context()
            if not self._allowed.admits(peer):
                self._refuse(names_shown(peer))
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, REFUSAL)
            return await behaviour(requests, context)

        return checked

    def _refuse(self, names: list[str]) -> None:
        self._counts.refused_identity += 1
        if not self._said:
            self._said = True
            log.warning(
                "a client's certificate has none of the names in PICKER_TLS_CLIENT_NAMES", names=names
            )
