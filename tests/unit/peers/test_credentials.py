"""What replicas prove themselves by: a file of secrets that may change, and certificates that may be renewed."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from picker.peers import credentials
from picker.peers.counts import Counts
from picker.peers.credentials import Credentials, PeerCertificates, SecretFile
from picker.settings import PeersSettings
from picker.tls import Material, TlsError
from tests.tools.certificates import Authority

OLD, NEW = "an-old-secret-0123456789", "a-new-secret-0123456789"


def shown(credentials: Credentials) -> str:
    return credentials.headers().get("Authorization", "")


def test_a_changed_secret_is_in_force_at_the_next_look_and_both_are_accepted_meanwhile(
    tmp_path: Path,
) -> None:
    file = tmp_path / "secret"
    file.write_text(OLD)
    ours = Credentials(PeersSettings(peers_secret_file=file), Counts())
    assert shown(ours) == f"Bearer {OLD}"
    file.write_text(f"{OLD}\n{NEW}\n")
    assert shown(ours) == f"Bearer {OLD}"
    assert ours.accepts(f"Bearer {NEW}")
    assert ours.accepts(f"Bearer {OLD}")
    file.write_text(f"{NEW}\n")
    assert shown(ours) == f"Bearer {NEW}"
    assert not ours.accepts(f"Bearer {OLD}")


@pytest.mark.parametrize(
    "given",
    ["", OLD, f"bearer {OLD}", f"Bearer {OLD} ", f"Bearer {OLD}x", "Bearer ", "Bearer \udcff", "Bearer é"],
)
def test_nothing_but_the_secret_as_a_bearer_token_is_accepted(tmp_path: Path, given: str) -> None:
    file = tmp_path / "secret"
    file.write_text(OLD)
    assert not Credentials(PeersSettings(peers_secret_file=file), Counts()).accepts(given)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no secret"),
        ("short", "16 to 512"),
        ("with a blank in it 0123456789", "16 to 512"),
        ("x" * 513, "16 to 512"),
        ("geheimnis-äöü-0123456789", "16 to 512"),
        ("\n".join(f"secret-number-{n:04}" for n in range(9)), "more than 8"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_never_shows_what_is_in_it(
    tmp_path: Path, text: str, words: str
) -> None:
    file, counts = tmp_path / "secret", Counts()
    file.write_text(text)
    with capture_logs() as logged:
        secret = SecretFile(file, counts)
        assert secret.words() == secret.words() == ()
    assert words in secret.fault
    assert counts.secret_failures > 0
    assert len(logged) == 1
    assert not text or text not in str(logged)


def test_a_secret_that_goes_away_or_breaks_leaves_the_one_in_force(tmp_path: Path) -> None:
    file, counts = tmp_path / "secret", Counts()
    secret = SecretFile(file, counts)
    assert secret.words() == ()
    file.write_text(OLD)
    assert secret.words() == (OLD,)
    assert not secret.fault
    file.write_text("short")
    assert secret.words() == (OLD,)
    file.unlink()
    assert secret.words() == (OLD,)
    assert "No such file" in secret.fault


def test_what_guards_the_port_is_said(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.pair("a").write(tmp_path)
    tls = {
        "peers_tls_ca_file": authority.write(tmp_path),
        "peers_tls_cert_file": certificate,
        "peers_tls_key_file": key,
    }
    secret = {"peers_secret_file": tmp_path / "secret"}

    def guard(**settings: Path) -> str:
        return Credentials(PeersSettings(**settings), Counts()).guard  # type: ignore[arg-type]

    assert guard() == ""
    assert guard(**secret) == "secret"
    assert guard(**tls) == "mutual TLS"
    assert guard(**secret, **tls) == "secret and mutual TLS"


@pytest.mark.parametrize("left_out", ["peers_tls_ca_file", "peers_tls_cert_file", "peers_tls_key_file"])
def test_half_of_the_files_of_mutual_tls_are_refused(tmp_path: Path, left_out: str) -> None:
    files = {
        name: tmp_path / name for name in ("peers_tls_ca_file", "peers_tls_cert_file", "peers_tls_key_file")
    }
    del files[left_out]
    with pytest.raises(ValidationError, match="all of PICKER_PEERS_TLS_CA_FILE"):
        PeersSettings(**files)  # type: ignore[arg-type]


def test_names_without_an_authority_are_refused() -> None:
    with pytest.raises(ValidationError, match="anybody could claim"):
        PeersSettings(peers_tls_names=("spiffe://a/b",))
    with pytest.raises(ValidationError, match="neither a SPIFFE id"):
        PeersSettings(
            peers_tls_ca_file=Path("ca"),
            peers_tls_cert_file=Path("crt"),
            peers_tls_key_file=Path("key"),
            peers_tls_names=("*.llama.svc",),
        )


def test_a_certificate_that_cannot_be_used_stops_the_start_with_its_setting(tmp_path: Path) -> None:
    authority = Authority()
    certificate, _ = authority.pair("a").write(tmp_path)
    _, other = authority.pair("b").write(tmp_path, "other")
    settings = PeersSettings(
        peers_tls_ca_file=authority.write(tmp_path), peers_tls_cert_file=certificate, peers_tls_key_file=other
    )
    with pytest.raises(TlsError, match="PICKER_PEERS_TLS_KEY_FILE"):
        Credentials(settings, Counts())


@pytest.mark.parametrize("failing", [1, 2, 3])
async def test_a_renewal_that_fails_anywhere_leaves_the_old_certificate_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    authority, counts = Authority(), Counts()
    certificate, key = authority.pair("a").write(tmp_path)
    files: dict[str, Any] = {
        "peers_tls_ca_file": authority.write(tmp_path),
        "peers_tls_cert_file": certificate,
        "peers_tls_key_file": key,
    }
    certificates = PeerCertificates(PeersSettings(**files), counts)
    before, shown = certificates.material, certificates.client
    authority.pair("a").write(tmp_path)
    calls = 0

    def without_files(material: Material, *, server: bool) -> ssl.SSLContext:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise TlsError("too many open files")
        return made(material, server=server)

    made = credentials._context
    monkeypatch.setattr(credentials, "_context", without_files)
    assert not await certificates.look()
    assert (certificates.material, certificates.client) == (before, shown)
    assert (counts.tls_reloads, counts.tls_reload_failures) == (0, 1)
    assert await certificates.look()
    assert certificates.material != before
    assert certificates.client is not shown
    assert (counts.tls_reloads, counts.tls_reload_failures) == (1, 1)
