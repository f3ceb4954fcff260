"""The table of backends, and the one way to open a plane: by URL.

A backend's module, and with it the driver that it needs, is imported when a URL first names it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlencode, urlsplit

from stateplane.booking import Owner, Rules
from stateplane.connecting import CONNECT_SECONDS
from stateplane.errors import BackendUnknownError, PlaneRefusedError
from stateplane.plane import StatePlane

BACKENDS: dict[str, tuple[str, str]] = {
    "memory": ("stateplane.memory", ""),
    "redis": ("stateplane.redis", "redis"),
    "rediss": ("stateplane.redis", "redis"),
    "redis+sentinel": ("stateplane.redis", "redis"),
    "rediss+sentinel": ("stateplane.redis", "redis"),
    "nats": ("stateplane.nats", "nats-py"),
    "tls": ("stateplane.nats", "nats-py"),
}
"""URL scheme -> module with an ``open_url`` and the package that it needs."""

Opener = Callable[..., StatePlane]


def scheme_of(url: str) -> str:
    """The scheme of a plane's URL. Raises BackendUnknownError, with a text that never holds the URL's password."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in BACKENDS:
        known = ", ".join(f"{name}://" for name in BACKENDS)
        told = f"the scheme {scheme[:20]!r}" if separator else "no scheme"
        raise BackendUnknownError(f"the plane's URL has {told}; known are {known}")
    return scheme


def open_plane(
    url: str,
    *,
    pool: str,
    owner: Owner,
    rules: Rules,
    timeout: float = 0.25,
    connect: float = CONNECT_SECONDS,
    password_file: Path | None = None,
    ca_file: Path | None = None,
    certificate_file: Path | None = None,
    key_file: Path | None = None,
) -> StatePlane:
    """Make the plane that ``url`` names; nothing is connected before its ``start``.

    ``timeout`` is the deadline of each call in seconds, ``connect`` that of making a connection, never less than a
    call's: it goes on in the background when the call that wanted it has failed. All files are read at each connection.
    Those for TLS may also stand in the URL, as ``?ca=FILE&certificate=FILE&key=FILE``, where they win. Raises
    BackendUnknownError for an unknown scheme or a missing package, PlaneRefusedError for a URL that cannot be read.
    """
    scheme = scheme_of(url)
    module, package = BACKENDS[scheme]
    try:
        opener = cast("Opener", importlib.import_module(module).open_url)
    except ModuleNotFoundError as error:
        raise BackendUnknownError(
            f"{scheme}:// needs the package {package or error.name!r}: pip install {package or error.name}"
        ) from error
    try:
        for host in urlsplit(url).netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError:
        # the cause would quote a part of the URL, which may be the password's
        raise PlaneRefusedError(
            f"the plane's URL ({scheme}://...) cannot be read: its host or port is malformed; "
            "a password with reserved characters must be percent-encoded"
        ) from None
    if module != "stateplane.memory":
        url = _with_files(url, ca=ca_file, certificate=certificate_file, key=key_file)
    return opener(
        url,
        pool=pool,
        owner=owner,
        rules=rules,
        timeout=timeout,
        connect=max(connect, timeout),
        password_file=password_file,
    )


def _with_files(url: str, **files: Path | None) -> str:
    """The URL with the options that it does not have yet."""
    had = urlsplit(url).query
    more = {name: str(file) for name, file in files.items() if file is not None and name not in parse_qs(had)}
    if not more:
        return url
    return f"{url}{'&' if had else '' if url.endswith('?') else '?'}{urlencode(more)}"
