"""The certificate of the ext_proc port."""

from __future__ import annotations

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from picker.settings import ServingSettings

_YEARS = 10


class TlsError(Exception):
    """TLS cannot be set up; the text names the setting and what to do."""


def key_and_chain(settings: ServingSettings) -> tuple[bytes, bytes] | None:
    """Private key and certificate chain in PEM, as `PICKER_TLS` asks for; None: plaintext.

    Raises:
        TlsError: where files are not named or cannot be read.
    """
    if settings.tls == "off":
        return None
    if settings.tls == "self-signed":
        return self_signed()
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        raise TlsError("PICKER_TLS=files needs PICKER_TLS_CERT_FILE and PICKER_TLS_KEY_FILE")
    try:
        chain = settings.tls_cert_file.read_bytes()
        x509.load_pem_x509_certificates(chain)
    except (OSError, ValueError) as error:
        raise TlsError(f"PICKER_TLS_CERT_FILE: {settings.tls_cert_file}: {error}") from error
    try:
        key = settings.tls_key_file.read_bytes()
        serialization.load_pem_private_key(key, password=None)
    except (OSError, ValueError, TypeError) as error:
        raise TlsError(f"PICKER_TLS_KEY_FILE: {settings.tls_key_file}: {error}") from error
    return key, chain


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
