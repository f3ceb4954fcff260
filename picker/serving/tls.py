"""The certificate of the ext_proc port, as `PICKER_TLS` asks for it and as grpcio takes it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import grpc

from picker.serving.counts import Counts
from picker.settings import ServingSettings
from picker.tls import Material, TlsError, Watched, read_authorities, read_pair, self_signed


def read_material(settings: ServingSettings) -> Material | None:
    """What `PICKER_TLS` asks for, read now; None: plaintext.

    Raises:
        TlsError: where files are not named, cannot be read, or do not belong together.
    """
    if settings.tls == "off":
        return None
    authorities = read_authorities(settings.tls_client_ca_file, setting="PICKER_TLS_CLIENT_CA_FILE")
    if settings.tls == "self-signed":
        return Material(*self_signed(), authorities)
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        raise TlsError("PICKER_TLS=files needs PICKER_TLS_CERT_FILE and PICKER_TLS_KEY_FILE")
    names = "PICKER_TLS_CERT_FILE", "PICKER_TLS_KEY_FILE"
    return Material(*read_pair(settings.tls_cert_file, settings.tls_key_file, settings=names), authorities)


class Certificates(Watched):
    """The certificate in force. New connections get the one that `look` found last, old ones live on with theirs."""

    def __init__(
        self, material: Material, read: Callable[[], Material | None], *, counts: Counts, seconds: float
    ) -> None:
        super().__init__(material, read, counts=counts, seconds=seconds)
        self._counts = counts
        self._handshakes = itertools.count(1)
        self._in_force = _configuration(material)
        self.credentials = grpc.dynamic_ssl_server_credentials(
            self._in_force, self._next, require_client_authentication=material.client_authorities is not None
        )
        """For the port. The server must hold on to this object: grpcio calls back into it at each connection."""

    def _taken(self, material: Material) -> None:
        self._in_force = _configuration(material)

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
