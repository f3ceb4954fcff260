"""Health's names, and where the certificate comes from."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509

from picker.serving.buffers import Body, Budget
from picker.serving.health import LIVENESS, READINESS, Health
from picker.serving.tls import read_material
from picker.serving.wire.health_pb2 import HealthCheckResponse
from picker.settings import ServingSettings
from picker.tls import Material, TlsError, self_signed


@pytest.mark.parametrize("name", READINESS)
def test_every_name_of_readiness_follows_it(name: str) -> None:
    health = Health()
    assert health.status(name) == HealthCheckResponse.NOT_SERVING
    health.set_ready(True)
    assert health.status(name) == HealthCheckResponse.SERVING


def test_liveness_does_not_depend_on_readiness() -> None:
    assert Health().status(LIVENESS) == HealthCheckResponse.SERVING


def test_an_unknown_name_is_unknown() -> None:
    assert Health().status("other") == HealthCheckResponse.SERVICE_UNKNOWN


def test_listeners_hear_of_changes_only_until_they_leave() -> None:
    health, heard = Health(), [0]

    def hear() -> None:
        heard[0] += 1

    leave = health.listen(hear)
    health.set_ready(True)
    health.set_ready(True)
    health.set_ready(False)
    leave()
    health.set_ready(True)
    assert heard == [2]


def test_the_self_signed_certificate_is_valid_now_and_for_years() -> None:
    _, chain = self_signed()
    certificate = x509.load_pem_x509_certificate(chain)
    now = dt.datetime.now(dt.UTC)
    assert certificate.not_valid_before_utc < now
    assert certificate.not_valid_after_utc > now + dt.timedelta(days=365 * 9)
    certificate.verify_directly_issued_by(certificate)


def test_tls_is_off_unless_asked_for() -> None:
    assert read_material(ServingSettings(tls="off")) is None


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
    key, chain = self_signed()
    (tmp_path / "tls.key").write_bytes(key)
    (tmp_path / "tls.crt").write_bytes(chain)
    settings = ServingSettings(
        tls="files", tls_cert_file=tmp_path / "tls.crt", tls_key_file=tmp_path / "tls.key"
    )
    assert read_material(settings) == Material(key, chain, None)


@pytest.mark.parametrize(
    ("cert", "key", "named"),
    [
        (None, None, "PICKER_TLS_CERT_FILE and PICKER_TLS_KEY_FILE"),
        ("missing", "tls.key", "PICKER_TLS_CERT_FILE"),
        ("nonsense", "tls.key", "PICKER_TLS_CERT_FILE"),
        ("tls.crt", "missing", "PICKER_TLS_KEY_FILE"),
        ("tls.crt", "nonsense", "PICKER_TLS_KEY_FILE"),
        ("tls.crt", "other.key", "PICKER_TLS_KEY_FILE.*not the key of"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, cert: str | None, key: str | None, named: str
) -> None:
    pem_key, chain = self_signed()
    (tmp_path / "other.key").write_bytes(self_signed()[0])
    (tmp_path / "tls.key").write_bytes(pem_key)
    (tmp_path / "tls.crt").write_bytes(chain)
    (tmp_path / "nonsense").write_text("not PEM")
    settings = ServingSettings(
        tls="files",
        tls_cert_file=tmp_path / cert if cert else None,
        tls_key_file=tmp_path / key if key else None,
    )
    with pytest.raises(TlsError, match=named):
        read_material(settings)


def test_a_budget_gives_no_more_than_it_has_and_gets_back_what_it_gave() -> None:
    budget = Budget(10)
    first, second = Body(budget), Body(budget)
    assert first.add(b"1234567")
    assert not second.add(b"1234")
    assert second.add(b"123")
    assert first.taken() == b"1234567"
    assert budget.held == 10
    first.forget()
    first.forget()
    assert budget.held == 3


def test_large_bodies_leave_room_for_small_ones() -> None:
    budget = Budget(8 << 20)
    large, small, other = Body(budget), Body(budget), Body(budget)
    while large.add(bytes(100_000)):
        pass
    assert budget.held <= 7 << 20
    assert small.add(bytes(60_000))
    assert not small.add(bytes(60_000)), "it is not small any more"
    while other.add(bytes(1)) and other.size < 60_000:
        pass
    assert budget.held <= 8 << 20


def test_small_bodies_do_not_pass_the_whole_budget() -> None:
    budget = Budget(1 << 20)
    bodies = [Body(budget) for _ in range(100)]
    assert sum(body.add(bytes(60_000)) for body in bodies) == (1 << 20) // 60_000
