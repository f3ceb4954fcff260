"""`picker check` as a gateway: its request against real ports, in every mode and with every kind of TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from picker.check.extproc import ProbeError, Security, healthy, pick
from picker.serving.modes import BodyMode
from picker.serving.seam import End, Picked, Refused
from picker.serving.server import Server
from picker.settings import ServingSettings
from tests.tools.certificates import Authority

if TYPE_CHECKING:
    from tests.serving.conftest import MakePicks, Picks

SECONDS = 10.0
PICKED = Picked("127.0.0.1:9", "booking")
REFUSED = Refused(503, "service_unavailable", "no_worker", "no worker is ready", reason="no worker is ready")


@asynccontextmanager
async def served(picks: Picks, **more: Any) -> AsyncIterator[Server]:
    settings = ServingSettings(grpc_host="127.0.0.1", grpc_port=0, grpc_health_port=0, **more)
    server = Server(settings, picks, hold=lambda: "response")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def picked(server: Server, security: Security | None = None, **more: Any) -> str:
    """The worker that is named."""
    address = f"127.0.0.1:{server.port}"
    security = security or Security()
    named = await pick(
        address, request_id="picker-check-1", model="", security=security, seconds=SECONDS, **more
    )
    return named.worker


@pytest.mark.parametrize("mode", [mode for mode in BodyMode if mode is not BodyMode.UNTOLD])
async def test_a_probe_gets_a_worker_in_every_body_mode_and_ends_its_booking_at_once(
    make_picks: MakePicks, mode: BodyMode
) -> None:
    picks = make_picks(lambda _: PICKED)
    async with served(picks) as server:
        assert await picked(server, mode=mode) == PICKED.destination
        assert picks.overs == [(PICKED.booking_id, End.PROVEN)]


async def test_a_refusal_and_a_closed_port_are_told_with_their_reason(make_picks: MakePicks) -> None:
    async with served(make_picks(lambda _: REFUSED)) as server:
        with pytest.raises(ProbeError, match="503: no worker is ready"):
            await picked(server)
    with pytest.raises(ProbeError, match="UNAVAILABLE"):
        await picked(server)


async def test_health_is_read_as_probes_read_it(make_picks: MakePicks) -> None:
    async with served(make_picks(lambda _: PICKED)) as server:
        address = f"127.0.0.1:{server.health_port}"
        assert not await healthy(address, seconds=SECONDS)
        server.set_ready(True)
        assert await healthy(address, seconds=SECONDS)
    with pytest.raises(ProbeError, match="UNAVAILABLE"):
        await healthy(address, seconds=SECONDS)


async def test_a_self_signed_certificate_is_taken_and_plain_text_is_not(make_picks: MakePicks) -> None:
    async with served(make_picks(lambda _: PICKED), tls="self-signed") as server:
        assert await picked(server, Security(tls=True))
        with pytest.raises(ProbeError):
            await picked(server)


async def test_a_certificate_is_judged_where_its_authority_is_named(
    make_picks: MakePicks, tmp_path: Path
) -> None:
    authority, other = Authority(), Authority("other")
    certificate, key = authority.pair("picker", dns=["picker.llama.svc"]).write(tmp_path)
    (tmp_path / "other").mkdir()
    async with served(
        make_picks(lambda _: PICKED), tls="files", tls_cert_file=certificate, tls_key_file=key
    ) as server:
        assert await picked(server, Security(tls=True))
        assert await picked(server, Security(tls=True, authorities=authority.write(tmp_path)))
        with pytest.raises(ProbeError):
            await picked(server, Security(tls=True, authorities=other.write(tmp_path / "other")))


async def test_a_replica_that_asks_for_certificates_is_shown_one(
    make_picks: MakePicks, tmp_path: Path
) -> None:
    authority = Authority()
    certificate, key = authority.pair("gateway", dns=["gateway"]).write(tmp_path, "gateway")
    mutual = {"tls": "self-signed", "tls_client_ca_file": authority.write(tmp_path)}
    async with served(make_picks(lambda _: PICKED), **mutual) as server:
        assert await picked(server, Security(tls=True, certificate=certificate, key=key))
        with pytest.raises(ProbeError):
            await picked(server, Security(tls=True))
