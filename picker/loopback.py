"""Whether a request came from this machine, and was meant to. Beneath the parts that serve pages."""

from __future__ import annotations

import ipaddress
import re

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
"""A Host header's value: a name or an address, and a port."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback_host(host: str) -> bool:
    """Whether a host, a name or an address without brackets, is this machine alone."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def came_over_loopback(remote: str | None, host: str | None) -> bool:
    """Whether a request came over loopback, and was meant to.

    Args:
        remote: The address that it came from.
        host: Its Host header as it came, None without one: a foreign name is a web page's trick (DNS rebinding).
    """
    if remote is None:
        return False
    try:
        if not ipaddress.ip_address(remote).is_loopback:
            return False
    except ValueError:
        return False
    named = _HOST.fullmatch(host or "")
    return named is not None and is_loopback_host((named[1] or named[2]).lower())
