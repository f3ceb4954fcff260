"""The certificate of the ext_proc port, renewed without a restart, and the names that its clients must show."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from picker.serving.counts import Counts
from picker.settings import ServingSettings

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
    """Who signs clients' certificates; None: clients show none."""

    @property
    def expires(self) -> dt.datetime:
        """When the server's certificate ends."""
        return x509.load_pem_x509_certificates(self.chain)[0].not_valid_after_utc


def read_material(settings: ServingSettings) -> Material | None:
    """What `PICKER_TLS` asks for, read now; None: plaintext.

    Raises:
        TlsError: where files are not named, cannot be read, or do not belong together.
    """
    if settings.tls == "off":
        return None
    authorities = _authorities(settings.tls_client_ca_file)
    if settings.tls == "self-signed":
        return Material(*self_signed(), authorities)
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        raise TlsError("PICKER_TLS=files needs PICKER_TLS_CERT_FILE and PICKER_TLS_KEY_FILE")
    try:
        chain = settings.tls_cert_file.read_bytes()
        certificate = x509.load_pem_x509_certificates(chain)[0]
    except _UNREADABLE as error:
        raise TlsError(f"PICKER_TLS_CERT_FILE: {settings.tls_cert_file}: {error}") from error
    try:
        pem = settings.tls_key_file.read_bytes()
        key = serialization.load_pem_private_key(pem, password=None)
    except _UNREADABLE as error:
        raise TlsError(f"PICKER_TLS_KEY_FILE: {settings.tls_key_file}: {error}") from error
    if key.public_key() != certificate.public_key():
        raise TlsError(
            f"PICKER_TLS_KEY_FILE: {settings.tls_key_file} is not the key of the first certificate in "
            f"PICKER_TLS_CERT_FILE, {settings.tls_cert_file}"
        )
    return Material(pem, chain, authorities)


def _authorities(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        pem = file.read_bytes()
        x509.load_pem_x509_certificates(pem)
    except _UNREADABLE as error:
        raise TlsError(f"PICKER_TLS_CLIENT_CA_FILE: {file}: {error}") from error
    return pem


class Certificates:
    """The certificate in force. New connections get the one that `look` found last, old ones live on with theirs.

    A pair that cannot be used, because it is half written or broken, changes nothing: the one in force stays.
    """

    def __init__(
        self, material: Material, read: Callable[[], Material | None], *, counts: Counts, seconds: float
    ) -> None:
        self._material = material
        self._read = read
        self._counts = counts
        self._seconds = seconds
        self._fault = ""
        self.renewed: Callable[[Material], None] = lambda _: None
        """Called with new material before it is in force; may raise `TlsError`, and the old one stays."""
        self._handshakes = itertools.count(1)
        self._in_force = _configuration(material)
        self.credentials = grpc.dynamic_ssl_server_credentials(
            self._in_force, self._next, require_client_authentication=material.client_authorities is not None
        )
        """For the port. The server must hold on to this object: grpcio calls back into it at each connection."""

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
        except TlsError as error:
            self._failed(str(error))
            return False
        self._fault = ""
        if found is None or not new:
            return False
        self._material, self._in_force = found, _configuration(found)
        self._counts.tls_reloads += 1
        log.info("certificate renewed", expires=found.expires.isoformat())
        return True

    def _failed(self, reason: str) -> None:
        self._counts.tls_reload_failures += 1
        if reason != self._fault:
            self._fault = reason
            log.error("the renewed certificate cannot be used, the old one stays", reason=reason)

    def _whole(self) -> Material | None:
        try:
            return self._read()
        except TlsError:
            # the mount may have been swapped between the two files: then both are new now
            return self._read()

    def _next(self) -> grpc.ServerCertificateConfiguration:
        """Called by a thread of grpcio before each handshake."""
        self._counts.tls_handshakes = next(self._handshakes)
        return self._in_force


def open_certificates(settings: ServingSettings, counts: Counts) -> Certificates | None:
    """The certificates that `PICKER_TLS` asks for; None: plaintext.

    Raises:
        TlsError: where they cannot be used.
    """
    material = read_material(settings)
    if material is None:
        return None
    return Certificates(
        material, lambda: read_material(settings), counts=counts, seconds=settings.tls_reload_seconds
    )


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.chain)], material.client_authorities
    )


class Allowed:
    """The names of `PICKER_TLS_CLIENT_NAMES`: SPIFFE ids match URIs of a certificate, all others its DNS names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._uris = frozenset(name for name in names if "://" in name)
        self._dns = frozenset(name.lower() for name in names if "://" not in name)

    def admits(self, peer: Mapping[Any, Any]) -> bool:
        """Whether a peer's certificate, as grpcio's ``auth_context`` shows it, carries one of the names."""
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
