"""A real NATS server with TLS, identities and rights per role: what each may say, and that all of it works together."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from picker.events.permissions import Tls, User, server_configuration
from picker.events.records import SCHEMA, Event, encode
from picker.events.subjects import Subjects

POOL = "team.a/llama 3"
WORKER = "[fd00::1]:8000"
SUBJECTS = Subjects(POOL)
LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def identity(folder: Path, name: str) -> tuple[User, Path]:
    """A fresh NKEY: its public half, and a file with its seed."""
    pair = nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)))
    file = folder / name
    file.write_text(pair.seed.decode() + "\n")
    return User(nkey=pair.public_key.decode()), file


class Authority:
    """A made-up certificate authority."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = self._write(name, self._sign(self._name, self._key, ca=True))

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        private = self._folder / f"{name}.key"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return self._write(name, self._sign(subject, key, ca=False)), private

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject).issuer_name(self._name).public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([LOOPBACK]), critical=False)
            .sign(self._key, hashes.SHA256())
        )  # fmt: skip

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        file = self._folder / f"{name}.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return file


async def test_bridge_and_replica_work_together_with_their_rights_and_no_more(
    configured: Any, until: Any, prompts: Any, tmp_path: Path
) -> None:
    replica_user, replica_seed = identity(tmp_path, "replica")
    bridge_user, bridge_seed = identity(tmp_path, "bridge")
    other_user, other_seed = identity(tmp_path, "other")
    path = await configured(
        server_configuration(
            POOL, replicas=[replica_user], bridges=[(WORKER, bridge_user), ("10.0.0.2:8000", other_user)]
        )
    )
    engine = path.engine()
    bridge, _ = path.bridge(engine, bridge_buffer=16, events={"nats_nkey_file": bridge_seed})
    first = path.replica(nats_nkey_file=replica_seed)
    for number in range(60):
        await engine.store(prompts(number))
    await until(lambda: first.recovered and first.held == engine.truth() and not first.partial)
    late = path.replica(nats_nkey_file=replica_seed)
    await until(lambda: late.recovered and late.held == engine.truth())
    assert late.subscriber.counts.snapshots == 1, "an answer in pieces passes the reply's permission"

    # a replica makes up events; another worker's bridge speaks for this one; a bridge listens to the others' events
    forged = encode(Event(SCHEMA, 2**62, 2**62, 1, "cleared"))
    stranger, _ = path.bridge(
        path.engine(), bridge_worker="10.0.0.2:8000", events={"nats_nkey_file": other_seed}
    )
    await until(lambda: stranger.link.connected)
    before = engine.truth()
    for link in (first.subscriber.link, late.subscriber.link, stranger.link):
        refused = link.counts.refused
        for subject in (SUBJECTS.events(WORKER), SUBJECTS.events(f"{WORKER}@1")):
            await link.send(subject, forged)
        await until(lambda link=link, refused=refused: link.counts.refused >= refused + 2)
    await stranger.link.send(SUBJECTS.asks(WORKER), b"")
    await stranger.link.send(SUBJECTS.picks(WORKER), b"")
    await until(lambda: stranger.link.counts.refused >= 4)
    await bridge.link.send(SUBJECTS.events("10.0.0.2:8000"), forged)
    await bridge.link.send("_INBOX.guessed.1", forged)
    await until(lambda: bridge.link.counts.refused >= 2)
    await asyncio.sleep(0.2)
    assert first.held == late.held == before
    await engine.store(prompts(70))
    await until(lambda: first.held == engine.truth() == late.held)


async def test_over_tls_with_client_certificates_all_is_the_same(
    configured: Any, until: Any, prompts: Any, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    client, client_key = authority.issue("client")
    user, password = User(name="r", password="s3cret"), User(name="b", password="s3cret2")
    path = await configured(
        server_configuration(
            POOL, replicas=[user], bridges=[(WORKER, password)], tls=Tls(certificate, key, authority.file)
        )
    )
    tls = {"nats_ca_file": authority.file, "nats_cert_file": client, "nats_key_file": client_key}
    port = path.nats.port
    engine = path.engine()
    path.nats.url = f"tls://b:s3cret2@127.0.0.1:{port}"
    path.bridge(engine, events=tls)
    path.nats.url = f"tls://r:s3cret@127.0.0.1:{port}"
    replica = path.replica(**tls)
    await engine.store(prompts(0))
    await until(lambda: replica.recovered and replica.held == engine.truth() != frozenset())
    await path.nats.kill()
    await until(lambda: not replica.subscriber.status().connected)
    await path.nats.start()
    await engine.store(prompts(1))
    await until(lambda: replica.recovered and replica.held == engine.truth())


@pytest.mark.parametrize("fault", ["no certificate", "unknown authority", "wrong password"])
async def test_who_is_not_let_in_says_so_and_goes_on_trying(
    configured: Any, until: Any, tmp_path: Path, fault: str
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    client, client_key = authority.issue("client")
    user = User(name="r", password="s3cret")
    path = await configured(
        server_configuration(POOL, replicas=[user], bridges=[], tls=Tls(certificate, key, authority.file))
    )
    tls = {"nats_ca_file": authority.file, "nats_cert_file": client, "nats_key_file": client_key}
    if fault == "no certificate":
        tls = {"nats_ca_file": authority.file}
    elif fault == "unknown authority":
        tls["nats_ca_file"] = Authority(tmp_path, "stranger").file
    password = "wrong" if fault == "wrong password" else "s3cret"
    path.nats.url = f"tls://r:{password}@127.0.0.1:{path.nats.port}"
    replica = path.replica(**tls)
    await until(lambda: replica.subscriber.link.counts.errors > 1)
    status = replica.subscriber.status()
    assert not status.connected
    assert status.last_error
    assert password not in status.last_error
    assert not replica.task.done()


async def test_a_small_payload_limit_of_the_server_is_kept_to(
    configured: Any, until: Any, prompts: Any
) -> None:
    path = await configured('{"max_payload": 4096}')
    engine = path.engine()
    bridge, _ = path.bridge(engine, bridge_buffer=16)
    first = path.replica()
    await until(lambda: bridge.link.max_payload == 4096)
    for number in range(0, 600, 2):
        await engine.store(prompts(number) + prompts(number + 1))
    await until(lambda: first.recovered and first.held == engine.truth())
    late = path.replica()
    await until(lambda: late.recovered and late.held == engine.truth())
    assert len(late.held) > 2_000
    assert bridge.link.counts.errors == 0


async def test_a_reader_too_slow_for_the_stream_loses_messages_and_then_asks(
    path: Any, until: Any, prompts: Any
) -> None:
    engine = path.engine()
    path.bridge(engine)
    replica = path.replica(events_queue=64)
    await until(lambda: replica.recovered)
    arrived = replica.subscriber.link._wishes[0].handler

    async def slow(message: Any) -> None:
        await asyncio.sleep(0.02)
        await arrived(message)

    subscription = next(iter(replica.subscriber.link._client._subs.values()))
    subscription._cb = slow
    for number in range(400):
        await engine.store(prompts(number))
        if number % 50 == 0:
            await asyncio.sleep(0.01)
    await until(lambda: replica.subscriber.link.counts.slow_consumer > 0)
    subscription._cb = arrived
    await until(lambda: replica.recovered and replica.held == engine.truth() and not replica.partial)
