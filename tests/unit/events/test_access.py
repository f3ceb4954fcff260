"""What must stop the start, in one clear line, and never shows a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from picker.events.access import check, server_urls
from picker.events.link import Link
from picker.settings import EventSettings, SettingsError


async def nothing() -> None:
    return None


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("127.0.0.1:4222", "no scheme"),
        ("http://127.0.0.1:4222", "'http' is not one of"),
        ("nats://", "no host"),
        ("nats://:4222", "no host"),
        ("nats://host:port", "cannot be read"),
        ("nats://host:99999", "cannot be read"),
        ("nats://host:0", "port 0"),
        ("nats://[::1:4222", "cannot be read"),
        ("nats://user:s3cret@host:4222/path", "follows the port"),
        ("nats://host:4222,", "address 2 of 2"),
        ("nats://user:s3cret@host:x", "cannot be read"),
        ("s3cret", "no scheme"),
    ],
)
def test_a_malformed_address_stops_the_start_in_one_line(url: str, wrong: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Link(EventSettings(nats_url=SecretStr(url)), name="x", clock=lambda: 0.0, opened=nothing)
    (line,) = caught.value.lines[:1]
    assert line.startswith("PICKER_NATS_URL: ")
    assert wrong in line
    assert "s3cret" not in line


@pytest.mark.parametrize(
    "url", ["", "nats://a:4222", "tls://a", "nats://u:p@[fd00::1]:4222, nats://b:4222/", "wss://a:443"]
)
def test_good_addresses_pass(url: str) -> None:
    check(EventSettings(nats_url=SecretStr(url)))
    assert len(server_urls(EventSettings(nats_url=SecretStr(url)))) == (url.count(",") + 1 if url else 0)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.write_text("")
    url = SecretStr("nats://a:1")
    for settings, named in (
        (EventSettings(nats_url=url, nats_ca_file=missing), "PICKER_NATS_CA_FILE"),
        (EventSettings(nats_url=url, nats_ca_file=empty), "PICKER_NATS_CA_FILE"),
        (EventSettings(nats_url=url, nats_cert_file=empty), "both or neither"),
        (EventSettings(nats_url=url, nats_cert_file=empty, nats_key_file=empty), "PICKER_NATS_CERT_FILE"),
        (EventSettings(nats_url=url, nats_nkey_file=empty), "PICKER_NATS_NKEY_FILE"),
        (EventSettings(nats_url=url, nats_credentials_file=missing), "PICKER_NATS_CREDENTIALS_FILE"),
        (EventSettings(nats_url=url, nats_credentials_file=empty, nats_nkey_file=empty), "not both"),
    ):
        with pytest.raises(SettingsError) as caught:
            check(settings)
        assert len(caught.value.lines) == 1
        assert named in caught.value.lines[0]
