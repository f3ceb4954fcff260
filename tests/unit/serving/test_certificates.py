"""Certificates that are renewed under way, and the names that clients must show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from picker import settings as setting
from picker.serving.counts import Counts
from picker.serving.tls import Certificates, open_certificates, read_material
from picker.settings import ServingSettings
from picker.tls import Allowed, TlsError
from tests.tools.certificates import Authority, Pair


def files(directory: Path, **more: Any) -> ServingSettings:
    return ServingSettings(
        tls="files", tls_cert_file=directory / "tls.crt", tls_key_file=directory / "tls.key", **more
    )


class Mount:
    """A secret as Kubernetes mounts it: links to `..data`, which is swapped in one step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._renewals = 0

    def swap(self, pair: Pair) -> None:
        self._renewals += 1
        version = f"..{self._renewals}"
        pair.write(self.directory / version)
        draft = self.directory / "..data_tmp"
        draft.symlink_to(version)
        draft.rename(self.directory / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"..data/{name}")


def opened(settings: ServingSettings) -> tuple[Certificates, Counts]:
    counts = Counts()
    certificates = open_certificates(settings, counts)
    assert certificates
    return certificates, counts


async def test_a_swapped_mount_is_in_force_after_the_next_look(tmp_path: Path) -> None:
    authority, mount = Authority(), Mount(tmp_path)
    mount.swap(authority.pair("one"))
    certificates, counts = opened(files(tmp_path))
    assert not await certificates.look()
    mount.swap(authority.pair("two"))
    assert await certificates.look()
    assert not await certificates.look()
    assert (counts.tls_reloads, counts.tls_reload_failures) == (1, 0)


@pytest.mark.parametrize("fault", ["half", "missing", "mixed", "key"])
async def test_a_pair_that_cannot_be_used_keeps_the_old_one_and_is_told_once(
    tmp_path: Path, fault: str
) -> None:
    authority = Authority()
    authority.pair("one").write(tmp_path)
    certificates, counts = opened(files(tmp_path))
    expires, renewed = certificates.expires, authority.pair("two")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    if fault == "half":
        certificate.write_bytes(renewed.chain[:200])
    elif fault == "missing":
        certificate.unlink()
    elif fault == "mixed":
        certificate.write_bytes(renewed.chain)
    else:
        key.write_bytes(b"")
    with capture_logs() as lines:
        assert not await certificates.look()
        assert not await certificates.look()
    assert (counts.tls_reloads, counts.tls_reload_failures) == (0, 2)
    assert [line["log_level"] for line in lines] == ["error"]
    assert certificates.expires == expires
    renewed.write(tmp_path)
    assert await certificates.look()


async def test_a_swap_between_the_two_files_is_no_fault(tmp_path: Path) -> None:
    authority = Authority()
    one, two = authority.pair("one"), authority.pair("two")
    one.write(tmp_path)
    first = read_material(files(tmp_path))
    assert first
    reads = 0

    def read() -> Any:
        nonlocal reads
        reads += 1
        if reads == 1:
            two.write(tmp_path)
            raise TlsError("the key of one with the certificate of the other")
        return read_material(files(tmp_path))

    counts = Counts()
    assert await Certificates(first, read, counts=counts, seconds=1).look()
    assert counts.tls_reload_failures == 0


async def test_renewed_authorities_are_in_force_as_well(tmp_path: Path) -> None:
    authority = Authority()
    authority.pair("one").write(tmp_path)
    certificates, counts = opened(files(tmp_path, tls_client_ca_file=authority.write(tmp_path)))
    Authority("other").write(tmp_path)
    assert await certificates.look()
    (tmp_path / "ca.crt").write_text("nothing")
    assert not await certificates.look()
    assert (counts.tls_reloads, counts.tls_reload_failures) == (1, 1)


@pytest.mark.parametrize(
    ("names", "dns", "uris", "admitted"),
    [
        (("spiffe://a/gateway",), (), ("spiffe://a/other", "spiffe://a/gateway"), True),
        (("spiffe://a/gateway",), (), ("spiffe://a/gateway/more",), False),
        (("gateway.example",), ("GATEWAY.example",), (), True),
        (("gateway.example",), ("*.example",), (), False),
        # a name of one kind is none of the other kind
        (("gateway.example",), (), ("gateway.example",), False),
        (("spiffe://a/gateway",), ("spiffe://a/gateway",), (), False),
        (("gateway.example", "spiffe://a/b"), (), ("spiffe://a/b",), True),
        (("gateway.example",), (), (), False),
    ],
)
def test_a_certificate_is_admitted_by_one_whole_name(
    names: tuple[str, ...], dns: tuple[str, ...], uris: tuple[str, ...], admitted: bool
) -> None:
    peer = {"peer_dns": [name.encode() for name in dns], "peer_uri": [uri.encode() for uri in uris]}
    assert Allowed(names).admits(peer) is admitted


def test_a_common_name_is_no_name() -> None:
    assert not Allowed(("gateway",)).admits({"x509_common_name": [b"gateway"]})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tls_client_ca_file": "/ca"}, "PICKER_TLS_CLIENT_CA_FILE: .*PICKER_TLS"),
        (
            {"tls": "self-signed", "tls_client_names": "a"},
            "PICKER_TLS_CLIENT_NAMES: .*PICKER_TLS_CLIENT_CA_FILE",
        ),
        (
            {"tls": "self-signed", "tls_client_ca_file": "/ca", "tls_client_names": "*.example"},
            "PICKER_TLS_CLIENT_NAMES: .*whole DNS name",
        ),
        (
            {"tls": "self-signed", "tls_client_ca_file": "/ca", "tls_client_names": "https://a"},
            "PICKER_TLS_CLIENT_NAMES: .*SPIFFE",
        ),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused_by_name(
    given: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"PICKER_{name.upper()}", value)
    with pytest.raises(setting.SettingsError, match=named):
        setting.load()


def test_client_authorities_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="PICKER_TLS_CLIENT_CA_FILE"):
        read_material(ServingSettings(tls="self-signed", tls_client_ca_file=tmp_path / "none"))
