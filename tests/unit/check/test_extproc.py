"""A gateway's one request, against ports that are none of a picker's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from picker.check import extproc
from picker.check.extproc import ProbeError, Security
from tests.tools.certificates import Authority


@asynccontextmanager
async def silent_port(folder: Path | None = None) -> AsyncIterator[str]:
    """The address of a port that takes connections and says nothing; over TLS with a folder for its certificate."""
    context = None
    if folder is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*Authority().pair("a", dns=["a"]).write(folder))

    async def taken(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            writer.close()

    server = await asyncio.start_server(taken, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def why_not(address: str, security: Security) -> str:
    with pytest.raises(ProbeError) as caught:
        await extproc.pick(address, request_id="x", model="", security=security, seconds=2)
    return str(caught.value)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_port_that_takes_connections_and_says_nothing_costs_the_deadline(tls: bool) -> None:
    async with silent_port() as address:
        assert "no answer within 2 s" in await why_not(address, Security(tls))


async def test_plain_text_where_tls_is_spoken_is_told_apart_from_a_closed_port(tmp_path: Path) -> None:
    async with silent_port(tmp_path) as address:
        assert await why_not(address, Security())
    assert "no TLS connection" in await why_not("127.0.0.1:9", Security(tls=True))


async def test_a_certificate_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_der: bytes) -> None:
        raise ValueError("negative serial")

    monkeypatch.setattr("cryptography.x509.load_der_x509_certificate", unreadable)
    async with silent_port(tmp_path) as address:
        assert "makes no sense: negative serial" in await why_not(address, Security(tls=True))
