"""How an address is written: ``host:port``, IPv6 hosts in brackets; one spelling for each address."""

from __future__ import annotations

import ipaddress
import re

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC = re.compile(r"[0-9.]+")
_PORT = re.compile(r"[0-9]{1,5}")
MAX_HOST = 253


class AddressError(ValueError):
    """A text that is no address; the message says what is wrong with it and what is allowed."""


def read_address(text: str, default_port: int | None = None) -> str:
    """
    The one spelling of an address: lower case, IPv6 compressed and in brackets, the port without leading zeros.

    Raises:
        AddressError: it is no ``host:port``, or the port is missing and there is no ``default_port``.

    """
    host, port = split_address(text)
    if port is None:
        port = default_port
    if port is None:
        raise AddressError(f"{text[:300]!r} has no port; write host:port, or [address]:port for IPv6")
    return join_address(host, port)


def join_address(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int | None]:
    """
    Host (without brackets) and port (None: not given) of an address.

    Raises:
        AddressError: it is no address.

    """
    shown = repr(text[:300])
    plain = text.strip()
    if plain.startswith("["):
        host, closing, rest = plain[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")):
            raise AddressError(f"{shown} is no address; write IPv6 as [address]:port")
        if ":" not in host:
            raise AddressError(f"{shown}: only IPv6 addresses stand in brackets")
        port = rest[1:] if rest else None
    elif plain.count(":") > 1:
        # Bare IPv6: a port could not be told from the address, so there is none.
        host, port = plain, None
    else:
        host, colon, tail = plain.partition(":")
        port = tail if colon else None
    return _host(host, shown), None if port is None else _port(port, shown)


def _host(host: str, shown: str) -> str:
    if ":" in host or _NUMERIC.fullmatch(host):
        if "%" in host:
            raise AddressError(f"{shown}: an address with a zone (%) means nothing to others")
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            raise AddressError(f"{shown}: {host[:300]!r} is no IP address") from None
    name = host.lower().removesuffix(".")
    if not name or len(name) > MAX_HOST or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise AddressError(f"{shown}: {host[:300]!r} is neither a host name nor an IP address")
    return name


def _port(port: str, shown: str) -> int:
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise AddressError(f"{shown}: the port must be a number from 1 to 65535, not {port[:20]!r}")
    return int(port)
