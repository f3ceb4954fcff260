"""Whose request it is, by a header that the gateway sets; and who asks most, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_LENGTH = 128
"""Longest tenant that is read, in characters."""
KEPT = 64
"""Tenants whose requests are counted apart."""
SHOWN = 16
"""So many of them are shown, those with most requests first."""


@dataclass(slots=True)
class Counts:
    """Requests, since the start, where a header is named for the tenant."""

    named: int = 0
    unnamed: int = 0
    """Without the header."""
    unusable: int = 0
    """Too long, or not plain ASCII: as if it were not there."""


class Tenants:
    """
    Reads the tenant of each request and counts requests by tenant.

    Whatever names come, `KEPT` of them are counted at one time: a new one takes the place of the one with the fewest
    requests, and its number with it (Metwally et al. 2005, "space-saving"). So who asks much stays, and a count is too
    high by at most ``over``.

    Args:
        header: Lower-case name; empty: there are no tenants.

    """

    def __init__(self, header: str) -> None:
        self.counts = Counts()
        self._header = header
        self._requests: dict[str, tuple[int, int]] = {}
        """Requests, and by how many they may be too many."""

    def read(self, headers: Mapping[str, str]) -> str:
        """The request's tenant; empty where there is none, or none that can be shown. Counts it."""
        if not self._header:
            return ""
        value = headers.get(self._header, "").strip()
        if not value:
            self.counts.unnamed += 1
            return ""
        if len(value) > MAX_LENGTH or not value.isascii() or not value.isprintable():
            self.counts.unusable += 1
            return ""
        self.counts.named += 1
        self._count(value)
        return value

    def _count(self, tenant: str) -> None:
        known = self._requests.get(tenant)
        if known is None and len(self._requests) >= KEPT:
            least = min(self._requests, key=lambda name: self._requests[name][0])
            number, _ = self._requests.pop(least)
            self._requests[tenant] = number + 1, number
            return
        number, over = known or (0, 0)
        self._requests[tenant] = number + 1, over

    def status(self) -> Mapping[str, Any] | None:
        """For ``/status.json``; None: there are no tenants."""
        if not self._header:
            return None
        most = sorted(self._requests.items(), key=lambda each: (-each[1][0], each[0]))[:SHOWN]
        return {
            "header": self._header,
            "most": [{"tenant": name, "requests": number, "over": over} for name, (number, over) in most],
        }
