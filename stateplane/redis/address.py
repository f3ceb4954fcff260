"""Where the server is and how to be let in, out of the plane's URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from stateplane.errors import PlaneRefusedError

PORT = 6379
SENTINEL_PORT = 26379
_TLS_OPTIONS = frozenset({"ca", "certificate", "key"})
_SENTINEL_OPTIONS = frozenset({"sentinel_user", "sentinel_password_file"})

Host = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Address:
    """A plane's URL, taken apart. Its text never holds a secret."""

    hosts: tuple[Host, ...]
    """The server, or with ``primary`` the sentinels."""
    primary: str
    """The name under which sentinels know the primary; empty: the host is the server itself."""
    database: int
    tls: bool
    ca: Path | None
    certificate: Path | None
    key: Path | None
    user: str = field(repr=False)
    password: str = field(repr=False)
    password_file: Path | None
    sentinel_user: str
    sentinel_password_file: Path | None

    @property
    def where(self) -> str:
        """The server, for a message."""
        hosts = ",".join(shown(host) for host in self.hosts)
        return f"{self.primary} (by the sentinels {hosts})" if self.primary else hosts

    def server(self, host: Host, *, timeout: float) -> AbstractConnection:
        """A connection to a server, not made yet; files are read anew. Raises PlaneRefusedError. Touches the disk."""
        password = self.password
        if self.password_file is not None:
            password = _secret(self.password_file, "password file")
        return self._connection(host, timeout, self.user, password, db=self.database)

    def sentinel(self, host: Host, *, timeout: float) -> AbstractConnection:
        """The same to a sentinel."""
        password = ""
        if self.sentinel_password_file is not None:
            password = _secret(self.sentinel_password_file, "sentinels' password file")
        return self._connection(host, timeout, self.sentinel_user, password)

    def _connection(
        self, host: Host, timeout: float, user: str, password: str, **more: Any
    ) -> AbstractConnection:
        made: dict[str, Any] = {
            "host": host[0],
            "port": host[1],
            "username": user or None,
            "password": password or None,
            "socket_timeout": None,
            "socket_connect_timeout": timeout,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "health_check_interval": 0,
            **more,
        }
        if not self.tls:
            return Connection(**made)
        self._check_files()
        return SSLConnection(
            ssl_ca_certs=_text(self.ca),
            ssl_certfile=_text(self.certificate),
            ssl_keyfile=_text(self.key),
            **made,
        )

    def _check_files(self) -> None:
        """The driver reads them too, but tells a bad file like a server that is away."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise PlaneRefusedError(
                f"the plane's TLS files (ca, certificate, key) cannot be used: {error}"
            ) from error


def shown(host: Host) -> str:
    """``host:port``."""
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def read_url(url: str, *, password_file: Path | None) -> Address:
    """Take the URL apart. Raises PlaneRefusedError, with a text that never holds its password.

    ``redis://[user[:password]@]host[:port][/database]``, ``rediss://`` the same over TLS;
    ``redis+sentinel://[user[:password]@]host[:port][,host[:port]...]/primary-name[/database]``, and
    ``rediss+sentinel://`` with both the sentinels and the server over TLS.
    """
    scheme = url.partition("://")[0][:20]
    try:
        parts = urlsplit(url)
        sentinel = parts.scheme.endswith("+sentinel")
        tls = parts.scheme.startswith("rediss")
        standard = SENTINEL_PORT if sentinel else PORT
        listed = parts.netloc.rpartition("@")[2]
        hosts = tuple(_host(host, standard) for host in (listed.split(",") if sentinel else [listed]))
        primary, database = _path(parts.path, sentinel=sentinel)
    except ValueError:
        # the cause would quote a part of the URL, which may be the password's
        raise PlaneRefusedError(
            f"the plane's URL ({scheme}://...) cannot be read: a part of it is malformed; it is "
            + (
                "host:port,host:port/primary-name"
                if "sentinel" in scheme
                else "host:port or host:port/database"
            )
            + ", and a password with reserved characters must be percent-encoded"
        ) from None
    options = _options(parts, tls=tls, sentinel=sentinel)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return Address(
        hosts=hosts,
        primary=primary,
        database=database,
        tls=tls,
        ca=options.get("ca"),
        certificate=options.get("certificate"),
        key=options.get("key"),
        user=unquote(user),
        password=unquote(password),
        password_file=password_file,
        sentinel_user=str(options.get("sentinel_user", "")),
        sentinel_password_file=options.get("sentinel_password_file"),
    )


def _host(text: str, standard: int) -> Host:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.username is not None or parts.path:
        raise ValueError("no host name")
    return parts.hostname, parts.port or standard


def _path(path: str, *, sentinel: bool) -> tuple[str, int]:
    primary, database = "", path.strip("/")
    if sentinel:
        primary, _, database = database.partition("/")
        if not primary:
            raise ValueError("no name of a primary")
    if database and not (database.isascii() and database.isdigit()):
        raise ValueError("no number of a database")
    return unquote(primary), int(database or 0)


def _options(parts: SplitResult, *, tls: bool, sentinel: bool) -> dict[str, Path]:
    known = (_TLS_OPTIONS if tls else frozenset()) | (_SENTINEL_OPTIONS if sentinel else frozenset())
    options = {name: Path(value) for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    unknown = sorted(set(options) - known)
    if unknown:
        plain = (
            ""
            if tls or unknown[0] not in _TLS_OPTIONS
            else f"; TLS needs {parts.scheme.replace('redis', 'rediss')}://"
        )
        raise PlaneRefusedError(
            f"the plane's URL ({parts.scheme}://...) has the option {unknown[0][:40]!r}; "
            f"known are {', '.join(sorted(known)) or 'none'}{plain}"
        )
    return options


def _secret(path: Path, what: str) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise PlaneRefusedError(f"the plane's {what} {path} cannot be read: {error}") from error


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


__all__ = ["Address", "Host", "read_url", "shown"]
