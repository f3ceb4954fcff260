"""The plane over TLS, on a server that speaks it; an ACL user, and a password that changes while we run."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stateplane import errors
from stateplane.backends import open_plane
from stateplane.booking import Amount, Booking, Owner, Rules
from stateplane.testing.world import watched
from tests.contract.stateplane import servers
from tests.contract.stateplane.servers import Server, free_port
from tests.tools.certificates import Authority

OWNER = Owner("a", "1")
HERE = "127.0.0.1"
POOL = "ns/tls"
DOCUMENT = Path(__file__).resolve().parents[3] / "docs/plane-on-redis.md"


def documented_rights() -> list[str]:
    """What the manual says that a user needs."""
    (line,) = re.findall(r"^ACL SETUSER picker on >PASSWORD (.*)$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    return str(line).split()


@dataclass
class Guarded:
    """A server that takes TLS only, from clients that show a certificate of its own authority."""

    server: Server
    port: int
    ca: Path
    client: tuple[Path, Path]

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority()
    ca = authority.write(folder)
    certificate, key = authority.pair("server", ips=[HERE]).write(folder, "server")
    port = free_port()
    server = servers.redis7(
        folder, "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(ca), "--tls-auth-clients", "yes",
    )  # fmt: skip
    server.start()
    yield Guarded(server, port, ca, authority.pair("client").write(folder, "client"))
    server.kill()


async def start(url: str, **files: Path | None) -> str:
    """Book once over that URL; what was raised instead."""
    plane = open_plane(url, pool=POOL, owner=OWNER, rules=Rules(), timeout=2.0, connect=5.0, **files)
    try:
        await plane.start({})
        version = (await plane.snapshot()).version
        outcome = await plane.book(Booking(secrets.token_hex(4), "", "w", OWNER, Amount(1, 1)))
        assert outcome.version is not None
        assert len(await watched(plane, version, until=outcome.version)) == 1
    except errors.StatePlaneError as error:
        return str(error)
    finally:
        await plane.close()
    return ""


async def test_calls_snapshot_and_feed_go_over_tls_with_a_client_certificate(guarded: Guarded) -> None:
    certificate, key = guarded.client
    assert not await start(guarded.url, ca_file=guarded.ca, certificate_file=certificate, key_file=key)


async def test_the_files_may_stand_in_the_url_and_win_there(guarded: Guarded, tmp_path: Path) -> None:
    certificate, key = guarded.client
    url = f"{guarded.url}/0?ca={guarded.ca}&certificate={certificate}&key={key}"
    told = [await start(url, ca_file=tmp_path / "none") for _ in range(3)]
    assert "" in told, "one late answer on a busy machine is no fault of the files"


async def test_a_server_of_another_authority_is_refused(guarded: Guarded, tmp_path: Path) -> None:
    certificate, key = guarded.client
    told = await start(
        guarded.url, ca_file=Authority("other").write(tmp_path), certificate_file=certificate, key_file=key
    )
    assert "not trusted" in told
    assert "CA file" in told


async def test_a_server_under_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority()
    ca = authority.write(tmp_path)
    certificate, key = authority.pair("server", ips=["127.0.0.9"]).write(tmp_path)
    port = free_port()
    server = servers.redis7(
        tmp_path, "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(ca), "--tls-auth-clients", "no",
    )  # fmt: skip
    server.start()
    try:
        told = await start(f"rediss://127.0.0.1:{port}", ca_file=ca)
    finally:
        server.kill()
    assert "not trusted" in told
    assert "host name" in told


async def test_a_missing_client_certificate_is_told(guarded: Guarded) -> None:
    assert "client certificate" in await start(guarded.url, ca_file=guarded.ca)


async def test_a_client_certificate_of_another_authority_is_told(guarded: Guarded, tmp_path: Path) -> None:
    certificate, key = Authority("other").pair("stranger").write(tmp_path)
    told = ""
    for _ in range(5):
        # the server resets the connection behind its alert; where the reset overtakes it, only the next try is told why
        told = await start(guarded.url, ca_file=guarded.ca, certificate_file=certificate, key_file=key)
        if "reset" not in told:
            break
    assert "client certificate" in told


async def test_files_that_cannot_be_used_name_themselves(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for wrong in (tmp_path / "missing.pem", tmp_path / "empty.pem"):
        assert "TLS files" in await start(guarded.url, ca_file=wrong)


async def test_tls_files_without_tls_in_the_url_stop_the_start(guarded: Guarded) -> None:
    with pytest.raises(errors.PlaneRefusedError, match="rediss"):
        open_plane("redis://127.0.0.1:1", pool=POOL, owner=OWNER, rules=Rules(), ca_file=guarded.ca)


async def test_a_user_with_the_documented_rights_can_do_all_that_a_replica_does(redis7: Server) -> None:
    if redis7.process is None:
        redis7.start()
    with redis7.client() as client:
        client.flushall()
        client.execute_command("ACL", "SETUSER", "replica", "reset", "on", ">secret", *documented_rights())
    assert not await start(f"redis://replica:secret@127.0.0.1:{redis7.port}")
    with redis7.client() as client:
        client.execute_command("ACL", "DELUSER", "replica")


async def test_a_password_that_changes_is_taken_from_its_file_at_the_next_connection(
    redis7: Server, tmp_path: Path
) -> None:
    if redis7.process is None:
        redis7.start()
    file = tmp_path / "password"
    file.write_text("first\n")
    with redis7.client() as client:
        client.execute_command("ACL", "SETUSER", "rotating", "reset", "on", ">first", *documented_rights())
    url = f"redis://rotating@127.0.0.1:{redis7.port}"
    plane = open_plane(url, pool=POOL, owner=OWNER, rules=Rules(), timeout=2.0, password_file=file)
    try:
        await plane.start({})
        with redis7.client() as client:
            client.execute_command("ACL", "SETUSER", "rotating", "resetpass", ">second")
            client.client_kill_filter(user="rotating")
        with pytest.raises(errors.PlaneRefusedError, match="refused our credentials"):
            await plane.start({})
        file.write_text("second\n")
        await plane.start({})
        await plane.beat({})
    finally:
        await plane.close()
        with redis7.client() as client:
            client.execute_command("ACL", "DELUSER", "rotating")
