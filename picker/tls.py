"""What TLS of any port needs: certificates from files, renewed without a restart, and the names that peers show.

Beneath the parts, so that the gateway's side and the replicas' own port share it. Here nothing knows a transport.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

log = structlog.get_logger(__name__)

_YEARS = 10
_UNREADABLE = (OSError, ValueError, TypeError, UnsupportedAlgorithm)


class TlsError(Exception):
    """TLS cannot be set up; the text names the setting and what to do."""


@dataclass(frozen=True, slots=True)
class Material:
    """What one handshake needs, all in PEM."""

    key: bytes
    chain: bytes
    client_authorities: bytes | None
    """Who signs the other side's certificates; None: it shows none."""

    @property
    def expires(self) -> dt.datetime:
        """When our own certificate ends."""
        return x509.load_pem_x509_certificates(self.chain)[0].not_valid_after_utc


def read_pair(certificate: Path, key: Path, *, settings: tuple[str, str]) -> tuple[bytes, bytes]:
    """The key and the certificate chain of two files, in this order; ``settings`` name the two in messages.

    Raises:
        TlsError: where one cannot be read, or they do not belong together.
    """
    named, key_named = settings
    try:
        chain = certificate.read_bytes()
        first = x509.load_pem_x509_certificates(chain)[0]
    except _UNREADABLE as error:
        raise TlsError(f"{named}: {certificate}: {error}") from error
    try:
        pem = key.read_bytes()
        private = serialization.load_pem_private_key(pem, password=None)
    except _UNREADABLE as error:
        raise TlsError(f"{key_named}: {key}: {error}") from error
    if private.public_key() != first.public_key():
        raise TlsError(
            f"{key_named}: {key} is not the key of the first certificate in {named}, {certificate}"
        )
    return pem, chain


def read_authorities(file: Path | None, *, setting: str) -> bytes | None:
    """The authorities of a file; None without one.

    Raises:
        TlsError: where it cannot be read, or holds no certificate.
    """
    if file is None:
        return None
    try:
        pem = file.read_bytes()
        x509.load_pem_x509_certificates(pem)
    except _UNREADABLE as error:
        raise TlsError(f"{setting}: {file}: {error}") from error
    return pem


class ReloadCounts(Protocol):
    """Where renewals are counted."""

    tls_reloads: int
    tls_reload_failures: int


class Watched:
    """The material in force: what `look` found last.

    A pair that cannot be used, because it is half written or broken, changes nothing: the one in force stays.
    """

    def __init__(
        self, material: Material, read: Callable[[], Material | None], *, counts: ReloadCounts, seconds: float
    ) -> None:
        self._material = material
        self._read = read
        self._reloads = counts
        self._seconds = seconds
        self._fault = ""
        self.renewed: Callable[[Material], None] = lambda _: None
        """Called with new material before it is in force; may raise `TlsError`, and the old one stays."""

    @property
    def material(self) -> Material:
        """What is in force."""
        return self._material

    @property
    def expires(self) -> dt.datetime:
        """When the certificate in force ends."""
        return self._material.expires

    async def run(self) -> None:
        """Look at the files again and again."""
        while True:
            await asyncio.sleep(self._seconds)
            await self.look()

    async def look(self) -> bool:
        """Read the files again; True where what they hold is new and in force from here on."""
        try:
            found = await asyncio.to_thread(self._whole)
            new = found is not None and found != self._material
            if new and found is not None:
                self.renewed(found)
                self._taken(found)
        except TlsError as error:
            self._failed(str(error))
            return False
        self._fault = ""
        if found is None or not new:
            return False
        self._material = found
        self._reloads.tls_reloads += 1
        log.info("certificate renewed", expires=found.expires.isoformat())
        return True

    def _taken(self, material: Material) -> None:
        """New material is in force from here on. Raises `TlsError`: it is not, and is looked at again."""

    def _failed(self, reason: str) -> None:
        self._reloads.tls_reload_failures += 1
        if reason != self._fault:
            self._fault = reason
            log.error("the renewed certificate cannot be used, the old one stays", reason=reason)

    def _whole(self) -> Material | None:
        try:
            return self._read()
        except TlsError:
            # the mount may have been swapped between the two files: then both are new now
            return self._read()


def load_pair(context: ssl.SSLContext, material: Material) -> None:
    """Give a context our key and chain. Raises what `ssl` raises where it cannot use them."""
    # the ssl module reads files only: this one is nowhere but in memory, where the system has such
    pem = material.key + b"\n" + material.chain
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
        return
    number = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(number, pem)
        context.load_cert_chain(f"/proc/self/fd/{number}")
    finally:
        os.close(number)


def load_authorities(context: ssl.SSLContext, material: Material) -> None:
    """Have a context ask for certificates that the material's authorities signed, where it names any."""
    if material.client_authorities is not None:
        context.load_verify_locations(cadata=material.client_authorities.decode())
        context.verify_mode = ssl.CERT_REQUIRED


def peer_of(transport: asyncio.BaseTransport) -> Mapping[str, list[bytes]]:
    """The names in the other side's certificate, in the form that `Allowed` judges."""
    certificate: Any = transport.get_extra_info("peercert") or {}
    names = certificate.get("subjectAltName", ())
    return {
        "peer_uri": [value.encode() for kind, value in names if kind == "URI"],
        "peer_dns": [value.encode() for kind, value in names if kind == "DNS"],
    }


class Allowed:
    """Names of which a certificate must carry one: SPIFFE ids match its URIs, all others its DNS names."""

    def __init__(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._uris = frozenset(name for name in names if "://" in name)
        self._dns = frozenset(name.lower() for name in names if "://" not in name)

    def admits(self, peer: Mapping[Any, Any]) -> bool:
        """Whether a peer's certificate, as grpcio (``auth_context``) or `peer_of` shows it, carries a name."""
        return not self._uris.isdisjoint(_texts(peer, "peer_uri")) or not self._dns.isdisjoint(
            name.lower() for name in _texts(peer, "peer_dns")
        )


def names_shown(peer: Mapping[Any, Any]) -> list[str]:
    """The names in a peer's certificate, cut short for a log line."""
    return [name[:256] for name in (*_texts(peer, "peer_uri"), *_texts(peer, "peer_dns"))[:8]]


def _texts(peer: Mapping[Any, Any], name: str) -> list[str]:
    return [value.decode("utf-8", "replace") for value in peer.get(name, ())]


def self_signed() -> tuple[bytes, bytes]:
    """A fresh key (P-256) and its own certificate, for gateways that do not verify."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "endpoint-picker")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
