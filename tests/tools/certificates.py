"""A certificate authority for tests."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, in PEM."""

    key: bytes
    chain: bytes

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificates(self.chain)[0].serial_number

    def write(self, directory: Path, name: str = "tls") -> tuple[Path, Path]:
        """Write `NAME.crt` and `NAME.key`; their paths in this order."""
        directory.mkdir(parents=True, exist_ok=True)
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.chain)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """Signs what it is asked to."""

    def __init__(self, name: str = "authority") -> None:
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self._name, self._name, self._key, authority=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def pair(
        self, name: str, *, dns: Sequence[str] = (), uris: Sequence[str] = (), ips: Sequence[str] = ()
    ) -> Pair:
        """A certificate of that common name, with those subject alternative names."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key, authority=False)
        others = [
            *map(x509.DNSName, dns),
            *map(x509.UniformResourceIdentifier, uris),
            *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips),
        ]
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return Pair(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        )

    def write(self, directory: Path, name: str = "ca") -> Path:
        """Write the authority's own certificate as `NAME.crt`; its path."""
        file = directory / f"{name}.crt"
        file.write_bytes(self.pem)
        return file


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
