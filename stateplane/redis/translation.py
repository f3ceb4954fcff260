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
    OSError,
    TimeoutError,
    EOFError,
)
"""The roots of everything that the driver and the socket raise."""

_BY_CLASS: dict[type[BaseException], type[StatePlaneError]] = {
    driver.AuthenticationError: PlaneRefusedError,
    driver.AuthorizationError: PlaneRefusedError,
    driver.NoPermissionError: PlaneRefusedError,
    driver.BusyLoadingError: PlaneUnavailableError,
    driver.ReadOnlyError: PlaneDisconnectedError,
    driver.TimeoutError: PlaneTimeoutError,
    TimeoutError: PlaneTimeoutError,
    driver.ConnectionError: PlaneDisconnectedError,
    OSError: PlaneDisconnectedError,
    EOFError: PlaneDisconnectedError,
}


def _corrupt(text: str, where: str) -> StatePlaneError:
    return PlaneCorruptError(text.partition("CORRUPT ")[2][:80] or where, "a stored value does not decode")


def _foreign(text: str, where: str) -> StatePlaneError:
    del text
    return PlaneCorruptError(where, "a key there holds a value of another type: something else uses our keys")


def _newer(text: str, where: str) -> StatePlaneError:
    return PlaneRefusedError(
        f"{where}: the pool's records have schema {text.partition('SCHEMA ')[2][:10]}, which is newer than this "
        "replica's; upgrade the replica"
    )


_BY_TEXT: tuple[tuple[str, Callable[[str, str], StatePlaneError]], ...] = (
    (
        "EPOCH ",
        lambda text, where: PlaneEpochError(
            f"{where} is in epoch {text.partition('EPOCH ')[2][:20]}, not in ours"
        ),
    ),
    ("SCHEMA ", _newer),
    ("CORRUPT ", _corrupt),
    ("WRONGTYPE", _foreign),
    (
        "NOREPLICAS",
        lambda text, where: PlaneUnavailableError(f"{where} has too few replicas to accept writes"),
    ),
    (
        "MISCONF",
        lambda text, where: PlaneUnavailableError(f"{where} cannot save its data and refuses writes"),
    ),
    ("MASTERDOWN", lambda text, where: PlaneUnavailableError(f"{where} is a replica without its primary")),
    ("LOADING", lambda text, where: PlaneUnavailableError(f"{where} is still loading its data")),
    ("BUSY", lambda text, where: PlaneUnavailableError(f"{where} is busy with another program's script")),
    ("READONLY", lambda text, where: PlaneDisconnectedError(f"{where} became a read-only replica")),
    (
        "OOM",
        lambda text, where: PlaneRefusedError(
            f"{where} is out of memory: raise maxmemory; a plane must never evict"
        ),
    ),
    (
        "NOPERM",
        lambda text, where: PlaneRefusedError(
            f"{where}: the user lacks rights: {text[:160]}; see the plane's ACL"
        ),
    ),
    (
        "MOVED",
        lambda text, where: PlaneRefusedError(
            f"{where} does not own the pool's slot: name the shard that does"
        ),
    ),
)


def translated(error: Exception, where: str) -> StatePlaneError:
    """Our error for a driver's. ``where`` is the server as ``host:port``; no text of ours holds a password."""
    text = str(error)
    if isinstance(error, driver.ResponseError) and not isinstance(error, driver.AuthenticationError):
        for mark, make in _BY_TEXT:
            if text.startswith(mark) or f" {mark}" in text[:60]:
                return make(text, where)
        return PlaneRefusedError(f"{where} refused a call: {text[:160]}")
    ours = next((_BY_CLASS[c] for c in type(error).__mro__ if c in _BY_CLASS), PlaneUnavailableError)
    if isinstance(error, driver.AuthenticationError):
        return ours(
            f"{where} refused our credentials: check the user in the plane's URL and the password there or in its file"
        )
    if ours is PlaneTimeoutError:
        return ours(f"{where} gave no answer in time")
    if isinstance(error, driver.BusyLoadingError):
        return ours(f"{where} is still loading its data")
    return ours(f"no connection to {where}: {text[:160] or type(error).__name__}")
