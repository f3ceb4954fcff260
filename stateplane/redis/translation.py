"""The driver's errors as ours. No driver's error crosses this adapter."""

from __future__ import annotations

from collections.abc import Callable

from redis import exceptions as driver

from stateplane.errors import (
    PlaneCorruptError,
    PlaneDisconnectedError,
    PlaneEpochError,
    PlaneRefusedError,
    PlaneTimeoutError,
    PlaneUnavailableError,
    StatePlaneError,
)
from stateplane.schema import unreadable

DRIVER_ERRORS: tuple[type[Exception], ...] = (
    driver.RedisError,
    driver.RedisClusterException,
    driver.ChildDeadlockedError,
    driver.IncorrectPolicyType,
    OSError,
    TimeoutError,
    EOFError,
)
"""The roots of everything that the driver and the socket raise."""

_Make = Callable[[str, str], StatePlaneError]
"""Makes our error from the driver's text and the server's name."""


def _credentials(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneRefusedError(
        f"{where} refused our credentials: check the user in the plane's URL and the password there or in its file"
    )


def _rights(text: str, where: str) -> StatePlaneError:
    return PlaneRefusedError(f"{where}: the user lacks rights: {text[:160]}; see the plane's ACL")


def _slow(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneTimeoutError(f"{where} gave no answer in time")


_TLS = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "shows a certificate that is not trusted; check the plane's CA file and host name",
    ),
    ("CERTIFICATE_REQUIRED", "wants a client certificate; name one and its key for the plane"),
    ("ALERT_UNKNOWN_CA", "does not trust our client certificate; it is signed by another authority"),
    ("WRONG_VERSION_NUMBER", "does not speak TLS on that port"),
)
"""What OpenSSL says -> what to say of the server."""


def _lost(text: str, where: str) -> StatePlaneError:
    for mark, told in _TLS:
        if mark in text.upper().replace(" ", "_"):
            return PlaneRefusedError(f"{where} {told}")
    return PlaneDisconnectedError(f"no connection to {where}: {text[:160] or 'it broke'}")


def _full(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneRefusedError(f"{where} is out of memory: raise maxmemory; a plane must never evict")


def _elsewhere(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneRefusedError(f"{where} does not own the pool's slot: name the shard that does")


def _epoch(text: str, where: str) -> StatePlaneError:
    return PlaneEpochError(f"{where} is in epoch {text.partition('EPOCH ')[2][:20]}, not in ours")


def _unreadable(text: str, where: str) -> StatePlaneError:
    found, newest = text.partition("SCHEMA ")[2].split()[:2]
    return PlaneRefusedError(f"{where}: {unreadable(int(found), newest=int(newest))}")


def _corrupt(text: str, where: str) -> StatePlaneError:
    return PlaneCorruptError(text.partition("CORRUPT ")[2][:80] or where, "a stored value does not decode")


def _foreign(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneCorruptError(where, "a key there holds a value of another type: something else uses our keys")


def _unexpected(text: str, where: str) -> StatePlaneError:
    return PlaneCorruptError(where, f"a script met a stored value that is not ours: {text[:160]}")


def _unserving(why: str) -> _Make:
    return lambda text, where: PlaneUnavailableError(f"{where} {why}")


_BY_CLASS: dict[type[BaseException], _Make] = {
    driver.AuthenticationError: _credentials,
    driver.AuthenticationWrongNumberOfArgsError: _credentials,
    driver.AuthorizationError: _credentials,
    driver.NoPermissionError: _rights,
    driver.BusyLoadingError: _unserving("is still loading its data"),
    driver.ReadOnlyError: lambda text, where: PlaneDisconnectedError(f"{where} became a read-only replica"),
    driver.MasterDownError: _unserving("is a replica without its primary"),
    driver.ClusterDownError: _unserving("belongs to a cluster that is down"),
    driver.TryAgainError: _unserving("is moving the pool's slot"),
    driver.AskError: _elsewhere,
    driver.OutOfMemoryError: _full,
    driver.NoScriptError: _unserving("forgot a script"),
    driver.TimeoutError: _slow,
    TimeoutError: _slow,
    driver.ConnectionError: _lost,
    OSError: _lost,
    EOFError: _lost,
}
"""The driver takes an error's code off its text and tells it by the class."""

_BY_TEXT: tuple[tuple[str, _Make], ...] = (
    ("EPOCH ", _epoch),
    ("SCHEMA ", _unreadable),
    ("CORRUPT ", _corrupt),
    ("WRONGTYPE", _foreign),
    ("NOREPLICAS", _unserving("has too few replicas to accept writes")),
    ("MISCONF", _unserving("cannot save its data and refuses writes")),
    ("BUSY", _unserving("is busy with another program's script")),
    # inside a script the code stays in the text
    ("READONLY", lambda text, where: PlaneDisconnectedError(f"{where} became a read-only replica")),
    ("OOM", _full),
    ("NOPERM", _rights),
    ("MASTERDOWN", _unserving("is a replica without its primary")),
    ("user_script:", _unexpected),  # a runtime error of Lua: no script of ours has one on values of ours
)
"""Codes that the driver has no class for, ours among them."""


def is_foreign(error: Exception) -> bool:
    """Whether a key of ours holds a value of another type."""
    return "WRONGTYPE" in str(error)[:60]


def translated(error: Exception, where: str) -> StatePlaneError:
    """Our error for a driver's. ``where`` is the server as ``host:port``; no text of ours holds a password."""
    text = str(error)
    make = next((_BY_CLASS[c] for c in type(error).__mro__ if c in _BY_CLASS), None)
    if make is None and isinstance(error, driver.ResponseError):
        make = next(
            (make for mark, make in _BY_TEXT if text.startswith(mark) or f" {mark}" in text[:60]), None
        )
        if make is None:
            return PlaneRefusedError(f"{where} refused a call: {text[:160]}")
    return (
        make(text, where)
        if make is not None
        else PlaneUnavailableError(f"{where}: {text[:160] or type(error).__name__}")
    )
