"""What replicas prove themselves by to one another: a shared secret, certificates, or both."""

from __future__ import annotations

import hmac
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from picker.peers.counts import Counts
from picker.settings import PeersSettings
from picker.tls import (
    Allowed,
    Material,
    TlsError,
    Watched,
    load_authorities,
    load_pair,
    read_authorities,
    read_pair,
)

log = structlog.get_logger(__name__)

SHORTEST, LONGEST = 16, 512
"""Characters of a secret: one that can be guessed is worse than a closed port."""
MOST_BYTES = 16 * 1024
MOST_SECRETS = 8
RELOAD_SECONDS = 10.0
_WORD = re.compile(rf"[!-~]{{{SHORTEST},{LONGEST}}}")
_SCHEME = "Bearer "


class SecretFile:
    """The secrets of a file, one a line: the first is shown to others, each is accepted. Read again when it changes.

    So that a secret can be changed without a moment of refusals: add the new one below the old, then put it first,
    then take the old one out. A file that cannot be used changes nothing.
    """

    def __init__(self, file: Path, counts: Counts) -> None:
        self._file = file
        self._counts = counts
        self._seen: tuple[int, int, int] | None = None
        self._words: tuple[str, ...] = ()
        self.fault = ""
        """What is wrong with the file now; empty: nothing."""

    def words(self) -> tuple[str, ...]:
        """The secrets in force; none while the file was never in order. Costs one look at the file's date."""
        try:
            found = self._file.stat()
            mark = (found.st_mtime_ns, found.st_ino, found.st_size)
            if mark != self._seen:
                self._words = _secrets(self._file)
                self._seen, self.fault = mark, ""
        except (OSError, ValueError) as error:
            self._counts.secret_failures += 1
            reason = f"PICKER_PEERS_SECRET_FILE: {error}"
            if reason != self.fault:
                self.fault = reason
                log.warning("the peers' secret cannot be used", reason=reason, known=bool(self._words))
        return self._words


def _secrets(file: Path) -> tuple[str, ...]:
    with file.open("rb") as opened:
        text = opened.read(MOST_BYTES + 1)
    lines = [line.strip() for line in text.decode("ascii", "replace").splitlines()]
    words = tuple(line for line in lines if line)
    if not words:
        raise ValueError(f"{file} holds no secret")
    if len(text) > MOST_BYTES or len(words) > MOST_SECRETS:
        raise ValueError(f"{file} holds more than {MOST_SECRETS} secrets")
    if not all(_WORD.fullmatch(word) for word in words):
        raise ValueError(
            f"{file}: a secret is {SHORTEST} to {LONGEST} printable ASCII characters without blanks, one a line; "
            "make one with `openssl rand -hex 32`"
        )
    return words


class PeerCertificates(Watched):
    """Our certificate as server and as client, and whom we believe; renewed without a restart."""

    def __init__(self, settings: PeersSettings, counts: Counts) -> None:
        """Read the files.

        Raises:
            TlsError: they cannot be used.
        """
        material = _material(settings)
        super().__init__(material, lambda: _material(settings), counts=counts, seconds=RELOAD_SECONDS)
        self.renewed = self._judged
        self._allowed = Allowed(settings.peers_tls_names) if settings.peers_tls_names else None
        self._server = _context(material, server=True)
        self.client = _context(material, server=False)
        """For connections to others, as of now."""
        self.listening = _context(material, server=True)
        """For the port: each handshake goes on with the material that is in force by then."""
        self.listening.sni_callback = self._handed_on

    def admits(self, peer: Mapping[Any, Any]) -> bool:
        """Whether the names that the other side has shown are those of a replica."""
        return self._allowed is None or self._allowed.admits(peer)

    def _handed_on(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._server

    def _judged(self, material: Material) -> None:
        _context(material, server=True)

    def _taken(self, material: Material) -> None:
        self._server, self.client = _context(material, server=True), _context(material, server=False)


def _material(settings: PeersSettings) -> Material:
    certificate, key = settings.peers_tls_cert_file, settings.peers_tls_key_file
    if certificate is None or key is None:
        raise TlsError(
            "PICKER_PEERS_TLS_CA_FILE needs PICKER_PEERS_TLS_CERT_FILE and PICKER_PEERS_TLS_KEY_FILE"
        )
    authorities = read_authorities(settings.peers_tls_ca_file, setting="PICKER_PEERS_TLS_CA_FILE")
    names = "PICKER_PEERS_TLS_CERT_FILE", "PICKER_PEERS_TLS_KEY_FILE"
    return Material(*read_pair(certificate, key, settings=names), authorities)


def _context(material: Material, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # replicas are asked by address; which names are theirs is PICKER_PEERS_TLS_NAMES' to say
    context.check_hostname = False
    if server:
        # a session taken up again is not judged anew: it would outlive an authority that is no longer believed
        context.num_tickets = 0
    try:
        load_pair(context, material)
        load_authorities(context, material)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(f"PICKER_PEERS_TLS_*: the certificate cannot be used: {error}") from error
    return context


class Credentials:
    """Both sides' proofs: what we show, and what we accept."""

    def __init__(self, settings: PeersSettings, counts: Counts) -> None:
        """Read what is set.

        Raises:
            TlsError: the certificates cannot be used.
        """
        self.secret = SecretFile(settings.peers_secret_file, counts) if settings.peers_secret_file else None
        self.certificates = PeerCertificates(settings, counts) if settings.peers_tls_ca_file else None

    @property
    def guard(self) -> str:
        """What guards the port, in words for the status page; empty: nothing does."""
        named = {"secret": self.secret is not None, "mutual TLS": self.certificates is not None}
        return " and ".join(name for name, there in named.items() if there)

    @property
    def fault(self) -> str:
        """What is wrong with them now; empty: nothing."""
        return self.secret.fault if self.secret is not None else ""

    @property
    def locked(self) -> bool:
        """Whether a secret is asked for and none is known: then nobody can be right."""
        return self.secret is not None and not self.secret.words()

    def headers(self) -> Mapping[str, str]:
        """What a question carries."""
        words = self.secret.words() if self.secret is not None else ()
        return {"Authorization": f"{_SCHEME}{words[0]}"} if words else {}

    def accepts(self, authorization: str) -> bool:
        """Whether the value of an Authorization header holds one of the secrets; compared in constant time."""
        if self.secret is None:
            return True
        shown = authorization.removeprefix(_SCHEME).encode("utf-8", "surrogateescape")
        found = [hmac.compare_digest(shown, word.encode()) for word in self.secret.words()]
        return authorization.startswith(_SCHEME) and any(found)
