"""TLS for asyncio: one context for each material that was in force."""

from __future__ import annotations

import asyncio
import ssl

from picker.tls import Material, TlsError, load_authorities, load_pair

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
        load_pair(context, material)
        load_authorities(context, material)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsError(f"PICKER_TLS_*: the certificate cannot be used: {error}") from error
    return context


def speaks_http2(transport: asyncio.BaseTransport) -> bool:
    """Whether the client agreed to HTTP/2; without TLS it need not."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return tls is None or tls.selected_alpn_protocol() == PROTOCOL
