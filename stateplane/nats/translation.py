"""The client's errors as ours. No driver's error crosses this adapter."""

from __future__ import annotations

import json
import ssl

import nats.errors
import nats.js.errors

from stateplane.errors import (
    PlaneDisconnectedError,
    PlaneRefusedError,
    PlaneTimeoutError,
    PlaneUnavailableError,
    StatePlaneError,
)

DRIVER_ERRORS: tuple[type[Exception], ...] = (
    nats.errors.Error,
    OSError,
    TimeoutError,
    EOFError,
    json.JSONDecodeError,
)
"""The roots of everything that the client and the socket raise."""


class MissingError(PlaneUnavailableError):
    """There is no such stream, key or message."""


class ConflictError(PlaneUnavailableError):
    """Somebody else wrote first."""


_CONFLICTS = frozenset({10071, 10164})
_NO_ROOM = frozenset({10023, 10028, 10047, 10077, 10122})
_NOT_ENABLED = frozenset({10039, 10076})

_BY_CLASS: dict[type[BaseException], type[StatePlaneError]] = {
    nats.js.errors.NotFoundError: MissingError,
    nats.js.errors.NoStreamResponseError: MissingError,
    nats.js.errors.KeyWrongLastSequenceError: ConflictError,
    nats.js.errors.ServiceUnavailableError: PlaneUnavailableError,
    nats.js.errors.ServerError: PlaneUnavailableError,
    nats.js.errors.APIError: PlaneRefusedError,
    nats.errors.AuthorizationError: PlaneRefusedError,
    nats.errors.SecureConnRequiredError: PlaneRefusedError,
    nats.errors.SecureConnFailedError: PlaneRefusedError,
    nats.errors.MaxPayloadError: PlaneRefusedError,
    nats.errors.TimeoutError: PlaneTimeoutError,
    nats.errors.Error: PlaneDisconnectedError,
    ssl.SSLError: PlaneRefusedError,
    TimeoutError: PlaneTimeoutError,
    OSError: PlaneDisconnectedError,
    EOFError: PlaneDisconnectedError,
    json.JSONDecodeError: PlaneUnavailableError,
}

_TEXTS: dict[type[StatePlaneError], str] = {
    PlaneTimeoutError: "{where} gave no answer in time",
    MissingError: "{where} has no such stream or key: {text}",
    ConflictError: "{where}: somebody else wrote first",
    PlaneUnavailableError: "{where} cannot serve JetStream at the moment: {text}",
    PlaneRefusedError: "{where} refused a call: {text}",
    PlaneDisconnectedError: "no connection to {where}: {text}",
}


def translated(error: Exception, where: str) -> StatePlaneError:
    """Our error for the client's. ``where`` is the server as ``host:port``; no text of ours holds a secret."""
    text = str(error)[:160].strip() or type(error).__name__
    if _unwelcome(error, text):
        return PlaneRefusedError(
            f"{where} refused our credentials: check user, password or credentials file of the plane's URL"
        )
    code = getattr(error, "err_code", None)
    if code in _NOT_ENABLED:
        return PlaneRefusedError(
            f"{where} has no JetStream for this account: enable it (nats-server -js, or in the account)"
        )
    if code in _NO_ROOM:
        return PlaneRefusedError(f"{where} has no room for the plane's streams: {text}; raise its limits")
    if code in _CONFLICTS:
        return ConflictError(_TEXTS[ConflictError].format(where=where))
    if isinstance(error, nats.errors.InvalidUserCredentialsError):
        return PlaneRefusedError(f"the credentials file for {where} does not hold a user's JWT and seed")
    if isinstance(error, nats.errors.SecureConnWantedError):
        return PlaneRefusedError(f"{where} does not offer TLS, but the plane's URL says tls://")
    if isinstance(error, ssl.SSLError):
        return PlaneRefusedError(f"{where}: TLS failed: {text}; check tls://, ca, certificate and key")
    ours = next((_BY_CLASS[c] for c in type(error).__mro__ if c in _BY_CLASS), PlaneUnavailableError)
    return ours(_TEXTS[ours].format(where=where, text=text))


def _unwelcome(error: Exception, text: str) -> bool:
    marks = ("authorization violation", "authentication", "user authentication", "account auth")
    return isinstance(error, nats.errors.AuthorizationError) or any(mark in text.lower() for mark in marks)
