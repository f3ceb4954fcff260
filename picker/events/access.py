"""
How a process gets in at NATS: addresses, TLS, credentials; checked at the start, read anew at each connection.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from picker.settings import EventSettings, SettingsError

SCHEMES: Final = ("nats", "tls", "ws", "wss")


def check(settings: EventSettings) -> None:
    """
    See that the settings can be used; the server itself may be away.

    Raises:
        SettingsError: one line per fault, naming the variable and never a password.

    """
    faults: list[str] = []
    for read in (server_urls, tls_context, identity):
        try:
            read(settings)
        except SettingsError as error:
            faults += error.lines
    if faults:
        raise SettingsError(faults)


def server_urls(settings: EventSettings) -> list[str]:
    """
    The servers, one of which is used; none where events are switched off.

    Raises:
        SettingsError: an address cannot be one.

    """
    text = settings.nats_url.get_secret_value().strip()
    urls = [each.strip() for each in text.split(",")] if text else []
    for number, url in enumerate(urls, start=1):
        fault = _fault_of(url)
        if fault:
            where = f" (address {number} of {len(urls)})" if len(urls) > 1 else ""
            raise SettingsError([f"PICKER_NATS_URL: {fault}{where}; nats://host:port is wanted"])
    return urls


def _fault_of(url: str) -> str:
    """What is wrong with one address; nothing of it that may be a password is repeated."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        return "no scheme"
    if scheme not in SCHEMES:
        return f"the scheme {scheme[:20]!r} is not one of {', '.join(SCHEMES)}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "host or port cannot be read"
    if not host:
        return "no host"
    if port == 0:
        return "port 0"
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return "something follows the port"
    return ""


def tls_context(settings: EventSettings) -> ssl.SSLContext | None:
    """
    The TLS side of a connection; ``None`` where nothing asks for it.

    Raises:
        SettingsError: a file cannot be read or does not fit.

    """
    ca, certificate, key = settings.nats_ca_file, settings.nats_cert_file, settings.nats_key_file
    wanted = any(url.startswith(("tls://", "wss://")) for url in server_urls(settings))
    if not (wanted or ca or certificate or key):
        return None
    if bool(certificate) != bool(key):
        raise SettingsError(["PICKER_NATS_CERT_FILE, PICKER_NATS_KEY_FILE: both or neither"])
    context = ssl.create_default_context()
    if ca is not None:
        try:
            context = ssl.create_default_context(cafile=str(ca))
        except (OSError, ssl.SSLError) as error:
            raise SettingsError([f"PICKER_NATS_CA_FILE: {ca}: {_short(error)}"]) from error
    if certificate is not None and key is not None:
        try:
            context.load_cert_chain(str(certificate), str(key))
        except (OSError, ssl.SSLError) as error:
            named = f"{certificate}, {key}"
            raise SettingsError(
                [f"PICKER_NATS_CERT_FILE, PICKER_NATS_KEY_FILE: {named}: {_short(error)}"]
            ) from error
    return context


def identity(settings: EventSettings) -> dict[str, Any]:
    """
    Who we are, as options of the client.

    Raises:
        SettingsError: a file cannot be read, or both kinds are given.

    """
    credentials, seed = settings.nats_credentials_file, settings.nats_nkey_file
    if credentials and seed:
        raise SettingsError(["PICKER_NATS_CREDENTIALS_FILE, PICKER_NATS_NKEY_FILE: one of them, not both"])
    if credentials:
        _readable(credentials, "PICKER_NATS_CREDENTIALS_FILE", "-----BEGIN")
        return {"user_credentials": str(credentials)}
    if seed:
        _readable(seed, "PICKER_NATS_NKEY_FILE", "SU")
        return {"nkeys_seed": str(seed)}
    return {}


def _readable(path: Path, variable: str, begins: str) -> None:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"{variable}: {path}: {_short(error)}"]) from error
    if begins not in text:
        raise SettingsError([f"{variable}: {path}: does not hold what it should ({begins}...)"])


def _short(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)[:100]
