"""Where the server is and how to be let in, out of the plane's URL; and what a pool's streams are called."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from stateplane.errors import PlaneRefusedError

PORT = 4222
_OPTIONS = frozenset({"storage", "replicas", "credentials", "ca", "certificate", "key"})
_LONGEST_TOKEN = 160
_CREDENTIALS_MARK = "BEGIN NATS USER JWT"


@dataclass(frozen=True, slots=True)
class Address:
    """A plane's URL, taken apart. Its text never holds a secret."""

    servers: tuple[str, ...]
    """``nats://host:port`` or ``tls://host:port`` each, without credentials."""
    tls: bool
    storage: str | None
    """``file`` or ``memory``; None: as it is found, a new one on file."""
    replicas: int | None
    credentials: Path | None
    ca: Path | None
    certificate: Path | None
    key: Path | None
    user: str = field(repr=False)
    password: str = field(repr=False)
    password_file: Path | None

    @property
    def where(self) -> str:
        """The servers, for a message."""
        return ",".join(server.partition("://")[2] for server in self.servers)

    def entry(self) -> dict[str, Any]:
        """What the client needs to be let in, files read anew. Raises PlaneRefusedError. Touches the disk."""
        options: dict[str, Any] = {}
        if self.tls:
            options["tls"] = self._tls_context()
        credentials, password = self.credentials, self.password
        if self.password_file is not None:
            told = _read(self.password_file, "password file")
            if _CREDENTIALS_MARK in told:
                credentials = self.password_file
            else:
                password = told.strip()
        if credentials is not None:
            _read(credentials, "credentials file")
            options["user_credentials"] = str(credentials)
        elif self.user and password:
            options |= {"user": self.user, "password": password}
        elif self.user or password:
            options["token"] = self.user or password
        return options

    def _tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise PlaneRefusedError(
                f"the plane's TLS files (ca, certificate, key) cannot be used: {error}"
            ) from error
        return context


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise PlaneRefusedError(f"the plane's {what} {path} cannot be read: {error}") from error


def read_url(url: str, *, password_file: Path | None) -> Address:
    """Take the URL apart. Raises PlaneRefusedError, with a text that never holds its password."""
    try:
        parts = urlsplit(url)
        servers = tuple(_server(parts.scheme, host) for host in parts.netloc.rpartition("@")[2].split(","))
    except ValueError:
        # the cause would quote a part of the URL, which may be the password's
        raise PlaneRefusedError(
            f"the plane's URL ({url.partition('://')[0][:20]}://...) cannot be read: its host or port is malformed; "
            "a password with reserved characters must be percent-encoded"
        ) from None
    options = _options(parts)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return Address(
        servers=servers,
        tls=parts.scheme == "tls",
        storage=options.get("storage"),
        replicas=int(options["replicas"]) if "replicas" in options else None,
        credentials=_path(options, "credentials"),
        ca=_path(options, "ca"),
        certificate=_path(options, "certificate"),
        key=_path(options, "key"),
        user=unquote(user),
        password=unquote(password),
        password_file=password_file,
    )


def _server(scheme: str, host: str) -> str:
    parts = urlsplit(f"//{host}")
    name = parts.hostname
    if not name or parts.username is not None:
        raise ValueError("no host name")
    name = f"[{name}]" if ":" in name else name
    return f"{scheme}://{name}:{parts.port or PORT}"


def _options(parts: SplitResult) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - _OPTIONS)
    if unknown or parts.path not in ("", "/"):
        told = f"the option {unknown[0][:40]!r}" if unknown else f"the path {parts.path[:40]!r}"
        raise PlaneRefusedError(
            f"the plane's NATS URL has {told}; known options are {', '.join(sorted(_OPTIONS))}, and no path"
        )
    if options.get("storage", "file") not in ("file", "memory"):
        raise PlaneRefusedError(
            f"storage={options['storage'][:20]!r} in the plane's URL: it is 'file' or 'memory'"
        )
    if options.get("replicas", "1") not in ("1", "2", "3", "4", "5"):
        raise PlaneRefusedError(
            f"replicas={options['replicas'][:20]!r} in the plane's URL: it is from 1 to 5"
        )
    return options


def _path(options: dict[str, str], name: str) -> Path | None:
    return Path(options[name]) if options.get(name) else None


def token_of(pool: str) -> str:
    """A pool's name as one token of a subject, a stream's and a bucket's name; no two pools share one.

    Letters, digits and ``-`` stand for themselves, any other byte is ``_`` and two hex digits.
    """
    plain = "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte == 0x2D) else f"_{byte:02X}"
        for byte in pool.encode()
    )
    if len(plain) <= _LONGEST_TOKEN:
        return plain
    return f"{plain[:_LONGEST_TOKEN]}__{hashlib.sha256(pool.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Names:
    """What a pool's streams are called."""

    log: str
    subject: str
    bucket: str

    @classmethod
    def of(cls, pool: str) -> Names:
        """The names of that pool."""
        token = token_of(pool)
        return cls(
            log=f"PICKER_PLANE_{token}",
            subject=f"picker.v1.{token}.plane.log",
            bucket=f"picker-plane-{token}",
        )

    @property
    def store(self) -> str:
        """The stream behind the bucket."""
        return f"KV_{self.bucket}"

    def key(self, name: str) -> str:
        """The subject of one of the bucket's keys."""
        return f"$KV.{self.bucket}.{name}"
