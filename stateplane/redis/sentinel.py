"""Asks the sentinels who the primary is: all of them at once, so that a dead one costs no time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from redis.exceptions import ResponseError

from stateplane.errors import PlaneDisconnectedError, PlaneRefusedError, StatePlaneError
from stateplane.redis.address import Address, Host, shown
from stateplane.redis.calls import ask
from stateplane.redis.translation import DRIVER_ERRORS, translated

_DOWN = ("s_down", "o_down", "disconnected", "slave", "failover_in_progress")
"""Flags under which a sentinel's word on the primary's address is not to be used."""


async def primary_of(address: Address, *, timeout: float) -> Host:
    """Where the primary is, by the first sentinel that knows. Raises StatePlaneError; the caller sets the deadline."""
    asking = [
        asyncio.create_task(_told_by(host, address, timeout), name="asking a sentinel")
        for host in address.hosts
    ]
    faults: list[StatePlaneError] = []
    try:
        for answer in asyncio.as_completed(asking):
            try:
                return await answer
            except StatePlaneError as error:
                faults.append(error)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    refused = [fault for fault in faults if isinstance(fault, PlaneRefusedError)]
    raise refused[0] if len(refused) == len(faults) else next(f for f in faults if f not in refused)


async def _told_by(host: Host, address: Address, timeout: float) -> Host:
    connection = address.sentinel(host, timeout=timeout)
    where = f"the sentinel {shown(host)}"
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
        flat = await ask(connection, "SENTINEL", "MASTER", address.primary)
    except ResponseError as error:
        if "No such master" in str(error):
            raise PlaneRefusedError(f"{where} knows no primary named {address.primary!r}") from error
        raise translated(error, where) from error
    except DRIVER_ERRORS as error:
        raise translated(error, where) from error
    finally:
        with suppress(*DRIVER_ERRORS):
            await connection.disconnect(nowait=True)
    return _usable(flat, where, address.primary)


def _usable(flat: list[bytes], where: str, primary: str) -> Host:
    told = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=False)}
    flags = told.get("flags", "").split(",")
    down = [flag for flag in flags if flag in _DOWN]
    if down:
        raise PlaneDisconnectedError(f"{where} holds the primary {primary!r} to be down ({','.join(down)})")
    try:
        return told["ip"], int(told["port"])
    except (KeyError, ValueError) as error:
        raise PlaneDisconnectedError(f"{where} tells no address of the primary {primary!r}") from error


__all__ = ["primary_of"]
