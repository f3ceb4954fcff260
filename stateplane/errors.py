"""What a plane may raise. The tree:

StatePlaneError                 on the pick path: count it, pick on local knowledge
  + PlaneUnavailableError       the server gave no answer
    - PlaneTimeoutError         ... within the call's deadline
    - PlaneDisconnectedError    ... because there is no connection
  + PlaneRefusedError           the server said no: credentials, rights, version, settings
  + PlaneCorruptError           a stored value does not decode; carries the key
  + PlaneEpochError             the plane began a new life: join again, take a snapshot, book again what is live
  + PlaneClosedError            we closed it first: the order of our shutdown is wrong
  + BackendUnknownError         no backend has that name, or its package is missing; at the start only

A driver's own error never crosses this boundary.
"""

from __future__ import annotations


class StatePlaneError(Exception):
    """Anything that a plane could not do."""


class PlaneUnavailableError(StatePlaneError):
    """The server gave no answer; whether it acted is unknown."""


class PlaneTimeoutError(PlaneUnavailableError):
    """No answer within the call's deadline."""


class PlaneDisconnectedError(PlaneUnavailableError):
    """There is no connection, or it broke while we waited."""


class PlaneRefusedError(StatePlaneError):
    """The server said no: wrong credentials, missing rights, too old, other settings. Asking again will not help."""


class PlaneCorruptError(StatePlaneError):
    """A stored value does not decode. ``key`` says which."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


class PlaneEpochError(StatePlaneError):
    """The plane began a new epoch (restart, loss, failover): what was known of the old one must be rebuilt."""


class PlaneClosedError(StatePlaneError):
    """The plane was closed before this call."""


class BackendUnknownError(StatePlaneError):
    """No backend of that name, or the package that it needs is not installed."""
