"""The peers port: who is answered, and when it stays closed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from picker.peers.asking import AskError, Peer
from picker.peers.counts import Counts
from picker.peers.credentials import Credentials
from picker.settings import PeersSettings
from tests.tools.certificates import Authority, Pair
from tests.unit.peers.replicas import SECRET, replica

PAGES = ("/summary.json", "/status.json", "/why/known-to-a")


async def got(address: str, path: str, **more: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"http://{address}{path}", **more) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("path", PAGES)
async def test_only_the_secret_opens_a_page_and_refusals_are_counted(secret_file: Path, path: str) -> None:
    async with replica("a", peers_secret_file=secret_file) as served:
        for given in ({}, {"Authorization": "Bearer wrong-wrong-wrong-wrong"}, {"Authorization": SECRET}):
            status, page = await got(served.address, path, headers=given)
            assert status == 401
            assert SECRET not in str(page)
        assert (served.counts.refusals["secret"], served.counts.served) == (3, 0)
        status, _ = await got(served.address, path, headers={"Authorization": f"Bearer {SECRET}"})
        assert status == 200
        assert served.counts.served == 1


async def test_there_is_nothing_to_write_and_no_bookings(secret_file: Path) -> None:
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with (
        replica("a", peers_secret_file=secret_file) as served,
        aiohttp.ClientSession(headers=headers) as http,
    ):
        for path in PAGES:
            async with http.post(f"http://{served.address}{path}", data=b"x") as answer:
                assert answer.status == 405
        for path in ("/bookings.json", "/loglevel", "/metrics", "/peers.json"):
            async with http.get(f"http://{served.address}{path}") as answer:
                assert answer.status == 404


async def test_a_refusal_is_logged_once_and_never_with_what_was_shown(secret_file: Path) -> None:
    with capture_logs() as logged:
        async with replica("a", peers_secret_file=secret_file) as served:
            for _ in range(3):
                await got(
                    served.address, "/summary.json", headers={"Authorization": "Bearer guess-guess-guess"}
                )
    refused = [line for line in logged if line["event"] == "a peer was refused"]
    assert len(refused) == 1
    assert "guess" not in str(logged)


async def test_without_a_guard_the_port_stays_closed_and_says_why() -> None:
    async with replica("a", host="0.0.0.0") as served:
        shown = served.port.shown()
        assert not shown["listening"]
        assert "PICKER_PEERS_SECRET_FILE" in shown["closed_because"]
    async with replica("a", host="") as served:
        assert not served.port.shown()["listening"]


async def test_without_a_guard_loopback_is_answered_and_a_foreign_host_name_is_not() -> None:
    async with replica("a") as served:
        assert served.port.shown()["guard"] == "loopback only"
        assert (await got(served.address, "/summary.json"))[0] == 200
        assert (await got(served.address, "/summary.json", headers={"Host": "evil.example"}))[0] == 403
        assert served.counts.refusals["loopback"] == 1


async def test_a_secret_that_is_not_there_yet_locks_the_port_until_it_comes(tmp_path: Path) -> None:
    file = tmp_path / "late"
    async with replica("a", peers_secret_file=file) as served:
        headers = {"Authorization": f"Bearer {SECRET}"}
        assert (await got(served.address, "/summary.json", headers=headers))[0] == 401
        assert served.counts.refusals["locked"] == 1
        assert "No such file" in served.port.shown()["fault"]
        file.write_text(SECRET)
        assert (await got(served.address, "/summary.json", headers=headers))[0] == 200
        assert served.port.shown()["fault"] is None


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
async def test_with_a_guard_it_answers_on_both_families(secret_file: Path, address: str) -> None:
    async with replica("a", host="", peers_secret_file=secret_file) as served:
        headers = {"Authorization": f"Bearer {SECRET}"}
        assert (await got(f"{address}:{served.port.port}", "/summary.json", headers=headers))[0] == 200


# mutual TLS


class Mtls:
    """The files of one replica."""

    def __init__(self, folder: Path, authority: Authority, pair: Pair) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        certificate, key = pair.write(folder)
        self.settings: dict[str, Any] = {
            "peers_tls_ca_file": authority.write(folder),
            "peers_tls_cert_file": certificate,
            "peers_tls_key_file": key,
        }

    def asking(self, **more: Any) -> tuple[Peer, Credentials, Counts]:
        counts = Counts()
        credentials = Credentials(PeersSettings(**self.settings, **more), counts)
        return Peer(credentials, counts), credentials, counts


async def reason(peer: Peer, address: str) -> str:
    """Why the peer there did not answer; empty where it did."""
    try:
        await peer.summary(address, seconds=5)
    except AskError as error:
        return error.reason
    finally:
        await peer.close()
    return ""


NAMES = ("spiffe://cluster.local/ns/llama/sa/picker",)


async def test_replicas_of_one_authority_answer_one_another_and_strangers_are_refused(tmp_path: Path) -> None:
    authority, stranger = Authority(), Authority("stranger")
    ours = Mtls(tmp_path / "a", authority, authority.pair("a"))
    theirs = Mtls(tmp_path / "b", authority, authority.pair("b"))
    other = Mtls(tmp_path / "c", stranger, stranger.pair("c"))
    async with replica("a", **ours.settings) as served:
        assert await reason(theirs.asking()[0], served.address) == ""
        peer, _, counts = other.asking()
        assert await reason(peer, served.address) == "certificate"
        assert counts.failures["certificate"] == 1
        plain = Peer(Credentials(PeersSettings(), Counts()), Counts())
        assert await reason(plain, served.address) == "unreachable"


async def test_a_client_without_the_authoritys_certificate_is_refused_though_it_believes_the_server(
    tmp_path: Path,
) -> None:
    authority, stranger = Authority(), Authority("stranger")
    ours = Mtls(tmp_path / "a", authority, authority.pair("a"))
    mixed = Mtls(tmp_path / "b", authority, stranger.pair("b"))
    async with replica("a", **ours.settings) as served:
        assert await reason(mixed.asking()[0], served.address) in ("certificate", "unreachable")
        assert served.counts.served == 0


async def test_a_certificate_without_one_of_the_names_is_refused_by_either_side(tmp_path: Path) -> None:
    authority = Authority()
    named = Mtls(tmp_path / "a", authority, authority.pair("a", uris=NAMES))
    nameless = Mtls(tmp_path / "b", authority, authority.pair("b", dns=["other"]))
    async with replica("a", **named.settings, peers_tls_names=NAMES) as served:
        assert await reason(named.asking(peers_tls_names=NAMES)[0], served.address) == ""
        assert await reason(nameless.asking()[0], served.address) == "refused"
        assert served.counts.refusals["certificate"] == 1
    async with replica("b", **nameless.settings) as served:
        assert await reason(named.asking(peers_tls_names=NAMES)[0], served.address) == "certificate"
        assert served.counts.served == 0, (
            "the question was sent to somebody who had not proven to be a replica"
        )


async def test_with_a_secret_and_certificates_both_must_be_right(tmp_path: Path, secret_file: Path) -> None:
    authority = Authority()
    files = Mtls(tmp_path / "a", authority, authority.pair("a"))
    async with replica("a", **files.settings, peers_secret_file=secret_file) as served:
        assert await reason(files.asking()[0], served.address) == "refused"
        assert await reason(files.asking(peers_secret_file=secret_file)[0], served.address) == ""
        assert served.port.shown()["guard"] == "secret and mutual TLS"


async def test_renewed_certificates_and_authorities_are_in_force_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    server, client = Mtls(tmp_path / "a", old, old.pair("a")), Mtls(tmp_path / "b", new, new.pair("b"))
    async with replica("a", **server.settings) as served:
        assert await reason(client.asking()[0], served.address) == "certificate"
        Mtls(server.folder, new, new.pair("a"))
        certificates = served.port._credentials.certificates
        assert certificates is not None
        assert await certificates.look()
        assert served.counts.tls_reloads == 1
        assert await reason(client.asking()[0], served.address) == ""


async def test_a_session_from_before_does_not_outlive_the_authority_that_vouched_for_it(
    tmp_path: Path,
) -> None:
    old, new = Authority("old"), Authority("new")
    server, client = Mtls(tmp_path / "a", old, old.pair("a")), Mtls(tmp_path / "b", old, old.pair("b"))
    context = client.asking()[1].certificates
    assert context is not None

    def asked(port: int, session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        assert context is not None
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
                context.client.wrap_socket(plain, session=session) as connection,
            ):
                connection.sendall(b"GET /summary.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                return connection.recv(4096), connection.session
        except OSError:
            return b"", None

    async with replica("a", **server.settings) as served:
        answer, session = await asyncio.to_thread(asked, served.port.port, None)
        assert b" 200 " in answer
        Mtls(server.folder, old, old.pair("a"))
        (server.folder / "ca.crt").write_bytes(new.pem)
        certificates = served.port._credentials.certificates
        assert certificates is not None
        assert await certificates.look()
        answer, _ = await asyncio.to_thread(asked, served.port.port, session)
        assert answer == b""
