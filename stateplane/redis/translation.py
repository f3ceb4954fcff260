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


def _lost(text: str, where: str) -> StatePlaneError:
    return PlaneDisconnectedError(f"no connection to {where}: {text[:160] or 'it broke'}")


def _full(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneRefusedError(f"{where} is out of memory: raise maxmemory; a plane must never evict")


def _elsewhere(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneRefusedError(f"{where} does not own the pool's slot: name the shard that does")


def _epoch(text: str, where: str) -> StatePlaneError:
    return PlaneEpochError(f"{where} is in epoch {text.partition('EPOCH ')[2][:20]}, not in ours")


def _newer(text: str, where: str) -> StatePlaneError:
    return PlaneRefusedError(
        f"{where}: the pool's records have schema {text.partition('SCHEMA ')[2][:10]}, which is newer than this "
        "replica's; upgrade the replica"
    )


def _corrupt(text: str, where: str) -> StatePlaneError:
    return PlaneCorruptError(text.partition("CORRUPT ")[2][:80] or where, "a stored value does not decode")


def _foreign(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneCorruptError(where, "a key there holds a value of another type: something else uses our keys")


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
    ("SCHEMA ", _newer),
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
)
"""Codes that the driver has no class for, ours among them."""


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
