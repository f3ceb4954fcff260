"""A NATS server that cannot serve us is told of in one clear line, and no line ever holds a secret."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import ipaddress
import json
import os
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
import nkeys  # type: ignore[import-untyped]
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from nats.js import api

from stateplane.backends import open_plane
from stateplane.booking import SCHEMA, Owner, Rules
from stateplane.errors import BackendUnknownError, PlaneRefusedError, PlaneUnavailableError, StatePlaneError
from stateplane.nats.address import Names, read_url
from stateplane.nats.plane import NatsPlane
from stateplane.nats.translation import translated
from stateplane.nats.wire import log_settings
from stateplane.plane import StatePlane
from stateplane.testing import RULES
from stateplane.testing.world import booking, exact
from tests.contract.natsserver import Server

POOL = "ns/pool"
NAMES = Names.of(POOL)
SECRET = "s3cr3t-word"


@contextlib.asynccontextmanager
async def opened(
    url: str, *, password_file: Path | None = None, rules: Rules = RULES
) -> AsyncIterator[StatePlane]:
    plane = open_plane(
        url, pool=POOL, owner=Owner("a", "1"), rules=rules, timeout=0.5, password_file=password_file
    )
    try:
        yield plane
    finally:
        await plane.close()


async def refusal(url: str, *, password_file: Path | None = None) -> str:
    """The one line; it must hold no secret, nor may what it came from."""
    with structlog.testing.capture_logs() as lines:
        async with opened(url, password_file=password_file) as plane:
            with pytest.raises(PlaneRefusedError) as caught:
                await plane.start({})
            with pytest.raises(StatePlaneError):
                await plane.beat({})
    text = str(caught.value)
    assert "\n" not in text
    for told in (text, repr(lines), "".join(traceback.format_exception(caught.value))):
        assert SECRET not in told
    return text


@contextlib.contextmanager
def running(folder: Path, *arguments: str, jetstream: bool = True) -> Iterator[Server]:
    server = Server(folder, *arguments, jetstream=jetstream)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats://127.0.0.1:notaport/", "malformed"),
        (f"nats://user:{SECRET}@127.0.0.1:notaport/", "malformed"),
        (f"nats://user:{SECRET}/@127.0.0.1:4222/", "malformed"),
        (f"nats://user:{SECRET}@/", "malformed"),
        ("nats://127.0.0.1/?storage=disk", "'file' or 'memory'"),
        ("nats://127.0.0.1/?replicas=9", "from 1 to 5"),
        ("nats://127.0.0.1/?colour=red", "option 'colour'"),
        ("nats://127.0.0.1/bucket", "path '/bucket'"),
    ],
)
def test_a_wrong_url_is_refused_before_anything_is_connected(url: str, said: str) -> None:
    with pytest.raises(PlaneRefusedError, match=said) as caught:
        open_plane(url, pool=POOL, owner=Owner("a", "1"), rules=RULES)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_url_of_several_servers_with_a_secret_is_read_and_its_text_hides_the_secret() -> None:
    address = read_url(f"tls://me:{SECRET}%40x@one:1,two/?storage=memory&replicas=3", password_file=None)
    assert address.servers == ("tls://one:1", "tls://two:4222")
    assert (address.storage, address.replicas, address.user, address.password) == (
        "memory",
        3,
        "me",
        f"{SECRET}@x",
    )
    assert address.where == "one:1,two:4222"
    assert SECRET not in repr(address)


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(BackendUnknownError, match="nats://, tls://"):
        open_plane("natss://x", pool=POOL, owner=Owner("a", "1"), rules=RULES)


async def test_no_server_there_is_unavailable_and_says_where(nats_server: Server) -> None:
    nats_server.kill()
    async with opened(nats_server.url()) as plane:
        with pytest.raises(PlaneUnavailableError, match=f"no connection to {nats_server.where}"):
            await plane.start({})
        nats_server.start()
        for _ in range(100):
            with contextlib.suppress(PlaneUnavailableError):
                await plane.start({})
                break
        await plane.book(booking("1"))


async def test_a_server_without_jetstream_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, jetstream=False) as server:
        assert "without JetStream" in await refusal(server.url())


async def test_a_wrong_password_is_refused_and_the_right_one_taken_from_url_or_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    with running(tmp_path, "--user", "me", "--pass", SECRET) as server:
        at = server.where
        assert "refused our credentials" in await refusal(f"nats://me:{SECRET}x@{at}/")
        assert "refused our credentials" in await refusal(f"nats://{at}/")
        assert "cannot be read" in await refusal(f"nats://me@{at}/", password_file=file)
        file.write_text(f"{SECRET}x\n")
        assert "refused our credentials" in await refusal(f"nats://me@{at}/", password_file=file)
        async with opened(f"nats://me@{at}/", password_file=file) as plane:
            with pytest.raises(PlaneRefusedError):
                await plane.start({})
            file.write_text(f"{SECRET}\n")  # it is read at each connection
            await plane.start({})
        async with opened(f"nats://me:{SECRET}@{at}/") as plane:
            await plane.start({})


async def test_a_token_is_taken_from_the_url(tmp_path: Path) -> None:
    with running(tmp_path, "--auth", SECRET) as server:
        assert "refused our credentials" in await refusal(f"nats://{SECRET}x@{server.where}/")
        async with opened(f"nats://{SECRET}@{server.where}/") as plane:
            await plane.start({})


def signed(claims: dict[str, Any], issuer: nkeys.KeyPair, subject: nkeys.KeyPair, name: str) -> str:
    """A JWT as NATS wants it: who may do what, signed by who says so."""
    body = {
        "iss": issuer.public_key.decode(), "sub": subject.public_key.decode(), "name": name, "iat": 1, "jti": name,
        "nats": {"version": 2, **claims},
    }  # fmt: skip
    parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, body]
    text = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
    )
    return text + "." + base64.urlsafe_b64encode(issuer.sign(text.encode())).rstrip(b"=").decode()


def key_pair(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), prefix)))


async def test_a_credentials_file_lets_us_in_and_one_that_does_not_is_refused(tmp_path: Path) -> None:
    operator, system, account, user = (
        key_pair(prefix)
        for prefix in (
            nkeys.PREFIX_BYTE_OPERATOR,
            nkeys.PREFIX_BYTE_ACCOUNT,
            nkeys.PREFIX_BYTE_ACCOUNT,
            nkeys.PREFIX_BYTE_USER,
        )
    )
    everything = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1}
    kept = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1, "wildcards": True}
    accounts = {
        system.public_key.decode(): signed(
            {"type": "account", "limits": everything}, operator, system, "SYS"
        ),
        account.public_key.decode(): signed(
            {"type": "account", "limits": everything | kept}, operator, account, "POOL"
        ),
    }
    config = tmp_path / "conf"
    config.write_text(
        f"operator: {signed({'type': 'operator'}, operator, operator, 'OP')}\n"
        f"system_account: {system.public_key.decode()}\nresolver: MEMORY\nresolver_preload: {{\n"
        + "".join(f"  {key}: {jwt}\n" for key, jwt in accounts.items())
        + "}\n"
    )
    limits = {"subs": -1, "data": -1, "payload": -1}
    jwt = signed({"type": "user", **limits}, account, user, "me")
    good, bad = tmp_path / "good.creds", tmp_path / "bad.creds"
    for file, seed in ((good, user.seed), (bad, key_pair(nkeys.PREFIX_BYTE_USER).seed)):
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{bytes(seed).decode()}\n------END USER NKEY SEED------\n"
        )
    with running(tmp_path, "-c", str(config)) as server:
        for url, password_file in ((server.url(f"?credentials={good}"), None), (server.url(), good)):
            async with opened(url, password_file=password_file) as plane:
                await plane.start({})
                await plane.book(booking("1"))
        assert "refused our credentials" in await refusal(server.url(f"?credentials={bad}"))
        assert "cannot be read" in await refusal(server.url(f"?credentials={tmp_path / 'none'}"))
        bad.write_text(f"-----BEGIN NATS USER JWT-----\n{SECRET}\n------END NATS USER JWT------\n")
        assert "credentials" in await refusal(server.url(), password_file=bad)


async def test_rights_that_are_missing_are_named(tmp_path: Path) -> None:
    config = tmp_path / "conf"
    config.write_text(
        'authorization { users: [{user: "me", password: "' + SECRET + '", permissions: '
        '{publish: {deny: "$JS.API.STREAM.>"}, subscribe: ">"}}] }'
    )
    with running(tmp_path, "-c", str(config)) as server:
        text = await refusal(f"nats://me:{SECRET}@{server.where}/")
    assert "lacks rights" in text
    assert "$JS.API.STREAM" in text.upper()


async def test_tls_that_is_asked_for_and_not_offered_is_refused_before_any_secret_is_sent(
    nats_server: Server,
) -> None:
    text = await refusal(f"tls://me:{SECRET}@{nats_server.where}/")
    assert "does not offer TLS" in text


async def test_tls_is_spoken_with_a_server_that_our_ca_vouches_for(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    arguments = ("--tls", "--tlscert", str(certificate), "--tlskey", str(key))
    with running(tmp_path, *arguments, "--user", "me", "--pass", SECRET) as server:
        base = f"tls://me:{SECRET}@{server.where}/"
        async with opened(f"{base}?ca={certificate}") as plane:
            await plane.start({})
            await plane.book(booking("1"))
        assert "TLS failed" in await refusal(base)
        assert "cannot be used" in await refusal(f"{base}?ca={tmp_path / 'none'}")


def write_certificate(certificate: Path, key: Path) -> None:
    """For 127.0.0.1, signed by itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nats")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"subjects": ["somebody.else"]}, "not ours"),
        ({"max_age": 60.0}, "max_age"),
        ({"max_msgs": 10}, "max_msgs=10"),
        ({"max_msgs_per_subject": 1}, "max_msgs_per_subject=1"),
        ({"discard": api.DiscardPolicy.NEW}, "discard=new"),
        ({"storage": api.StorageType.MEMORY}, "storage=memory, but the plane's URL asks for storage=file"),
    ],
)
async def test_a_stream_with_other_settings_is_refused(
    nats_server: Server, settings: dict[str, object], said: str
) -> None:
    client = await nats_server.client()
    await client.jetstream().add_stream(log_settings(NAMES).evolve(**settings))
    text = await refusal(nats_server.url("?storage=file&replicas=1"))
    assert said in text
    assert NAMES.log in text
    await client.close()


async def test_a_bucket_with_other_settings_is_refused(nats_server: Server) -> None:
    client = await nats_server.client()
    await client.jetstream().create_key_value(bucket=NAMES.bucket, history=5)
    text = await refusal(nats_server.url())
    assert f"the stream {NAMES.store}" in text
    assert "max_msgs_per_subject=5" in text
    await client.close()


async def test_a_pool_is_taken_as_it_is_where_the_url_asks_for_nothing(nats_server: Server) -> None:
    async with opened(nats_server.url("?storage=memory")) as plane:
        await plane.start({})
        async with opened(nats_server.url()) as other:
            await other.start({})
            await exact(other)
        assert "storage=memory" in await refusal(nats_server.url("?storage=file"))


async def test_foreign_keys_and_messages_are_left_alone_and_harm_nothing(nats_server: Server) -> None:
    client = await nats_server.client()
    async with opened(nats_server.url()) as plane:
        assert isinstance(plane, NatsPlane)
        await plane.start({})
        await plane.book(booking("1"))
        await plane._log.checkpoint()
        bucket = await client.jetstream().key_value(NAMES.bucket)
        await bucket.put("theirs.key", b"something")
        for data in (b"", b"hello", b"\x93\x01\x02\x03"):
            await client.jetstream().publish(NAMES.subject, data)
        await plane.book(booking("2"))
        await bucket.put("head", b"not ours")
        async with opened(nats_server.url()) as other:
            assert isinstance(other, NatsPlane)
            await other.start({})
            assert {one.id for one in (await other.snapshot()).bookings} == {"1", "2"}
            assert other.counts.foreign >= 3
            await other._log.checkpoint()  # takes the head's place
            await exact(other)
        assert (await bucket.get("theirs.key")).value == b"something"
        assert plane.counts.foreign >= 3
    await client.close()


async def test_a_checkpoint_that_does_not_decode_is_passed_over(nats_server: Server) -> None:
    client = await nats_server.client()
    async with opened(nats_server.url()) as plane:
        assert isinstance(plane, NatsPlane)
        await plane.start({})
        await plane.book(booking("1"))
        await plane._log.checkpoint()
        info = await client.jetstream().stream_info(NAMES.store, subjects_filter="$KV.*.c.>")
        for subject in info.state.subjects or {}:
            await client.jetstream().publish(subject, b"\xc1 broken")
        async with opened(nats_server.url()) as other:
            await other.start({})
            assert [one.id for one in (await other.snapshot()).bookings] == ["1"]
    await client.close()


@pytest.mark.parametrize("place", ["log", "head"])
async def test_a_newer_schema_is_refused_and_nothing_is_written(nats_server: Server, place: str) -> None:
    client = await nats_server.client()
    newer = msgspec.msgpack.encode([SCHEMA + 1, "of", "the", {"future": True}])
    async with opened(nats_server.url()) as plane:
        assert isinstance(plane, NatsPlane)
        await plane.start({})
        await plane._log.checkpoint()
    if place == "log":
        await client.jetstream().publish(NAMES.subject, newer)
    else:
        await (await client.jetstream().key_value(NAMES.bucket)).put("head", newer)
    before = (await client.jetstream().stream_info(NAMES.log)).state.last_seq
    text = await refusal(nats_server.url())
    assert f"schema {SCHEMA + 1}" in text
    assert "upgrade the replica" in text
    assert (await client.jetstream().stream_info(NAMES.log)).state.last_seq == before
    await client.close()


async def test_a_replica_that_meets_a_newer_schema_while_it_serves_stops_and_says_so(
    nats_server: Server,
) -> None:
    client = await nats_server.client()
    async with opened(nats_server.url()) as plane:
        await plane.start({})
        await client.jetstream().publish(NAMES.subject, msgspec.msgpack.encode([SCHEMA + 1, "x"]))
        for _ in range(100):
            try:
                await plane.beat({})
            except PlaneRefusedError as error:
                assert "upgrade the replica" in str(error)  # noqa: PT017 - the first ones may be told of the break
                break
            except StatePlaneError:
                await asyncio.sleep(0.01)
        else:
            raise AssertionError("it went on")
    await client.close()


def test_every_error_of_the_client_becomes_one_of_ours() -> None:
    known = (nats.errors.Error, nats.js.errors.APIError, OSError, TimeoutError, EOFError)
    for module in (nats.errors, nats.js.errors):
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, Exception):
                assert issubclass(kind, known), name
                said = type(name, (kind,), {"__init__": lambda _self: None, "__str__": lambda _self: "why"})
                assert isinstance(translated(said(), "here"), StatePlaneError), name
