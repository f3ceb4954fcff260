"""TLS for asyncio: one context for each material that was in force, and the names that a client has shown."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Mapping
from typing import Any

from picker.serving.tls import Material, TlsError

PROTOCOL = "h2"
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Those of TLS 1.2 that HTTP/2 allows; those of TLS 1.3 all are."""


def context_of(material: Material) -> ssl.SSLContext:
    """A server's context.

    Raises:
        TlsError: where OpenSSL cannot use the material.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols([PROTOCOL])
        _load(context, material)
        if material.client_authorities is not None:
            context.load_verify_locations(cadata=material.client_authorities.decode())
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(f"PICKER_TLS_*: the certificate cannot be used: {error}") from error
    return context


def _load(context: ssl.SSLContext, material: Material) -> None:
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


def peer_of(transport: asyncio.BaseTransport) -> Mapping[str, list[bytes]]:
    """The names in a client's certificate, in the form that `picker.serving.tls.Allowed` judges."""
    certificate: Any = transport.get_extra_info("peercert") or {}
    names = certificate.get("subjectAltName", ())
    return {
        "peer_uri": [value.encode() for kind, value in names if kind == "URI"],
        "peer_dns": [value.encode() for kind, value in names if kind == "DNS"],
    }


def speaks_http2(transport: asyncio.BaseTransport) -> bool:
    """Whether the client agreed to HTTP/2; without TLS it need not."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == PROTOCOL
