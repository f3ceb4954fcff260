"""A plane's URL on Redis, taken apart; its password is never told."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateplane.backends import open_plane
from stateplane.booking import Owner, Rules
from stateplane.errors import PlaneRefusedError
from stateplane.redis.address import Address, read_url
from stateplane.redis.link import read_replication

SECRET = "hunter2-secret"


def read(url: str, password_file: Path | None = None) -> Address:
    return read_url(url, password_file=password_file)


def test_a_plain_url_names_a_server() -> None:
    address = read("redis://u:p%40ss@h:7000/3")
    assert (address.hosts, address.database, address.primary) == ((("h", 7000),), 3, "")
    assert (address.user, address.password, address.tls) == ("u", "p@ss", False)
    assert read("redis://h").hosts == (("h", 6379),)
    assert read("redis://[::1]:7000").hosts == (("::1", 7000),)
    assert read("redis://[::1]:7000").where == "[::1]:7000"


def test_a_sentinel_url_names_sentinels_and_a_primary() -> None:
    address = read(
        "redis+sentinel://u:p@a:1,b,[::1]:3/the%20primary/2?sentinel_user=s&sentinel_password_file=/f"
    )
    assert address.hosts == (("a", 1), ("b", 26379), ("::1", 3))
    assert (address.primary, address.database) == ("the primary", 2)
    assert (address.sentinel_user, address.sentinel_password_file) == ("s", Path("/f"))
    assert address.where == "the primary (by the sentinels a:1,b:26379,[::1]:3)"


def test_tls_takes_its_files_from_the_url() -> None:
    address = read("rediss://h?ca=/a&certificate=/b&key=/c")
    assert (address.tls, address.ca, address.certificate, address.key) == (
        True,
        Path("/a"),
        Path("/b"),
        Path("/c"),
    )
    assert read("rediss+sentinel://h/p?ca=/a").ca == Path("/a")


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{SECRET}/x@h:1", f"redis://u:{SECRET}@h:port", f"redis://u:{SECRET}@", f"redis://u:{SECRET}@h/name",
        f"redis://u:{SECRET}@a:1,b:2", f"redis+sentinel://u:{SECRET}@a:1", f"redis+sentinel://u:{SECRET}@a:1,/p",
        f"redis+sentinel://u:{SECRET}@a:1/p/x", f"redis://u:{SECRET}@h?ca=/a", f"rediss://u:{SECRET}@h?socket_timeout=1",
        f"redis://u:{SECRET}@[::1",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_read_is_refused_in_one_line_without_its_password(url: str) -> None:
    with pytest.raises(PlaneRefusedError) as told:
        read(url)
    assert SECRET not in str(told.value)
    assert "\n" not in str(told.value)
    assert told.value.__cause__ is None


@given(st.text(min_size=8, max_size=40))
def test_any_password_comes_through_and_is_never_shown(password: str) -> None:
    try:
        told = quote(password, safe="")
    except UnicodeEncodeError:
        return
    address = read(f"redis+sentinel://picker:{told}@h:1,i:2/primary")
    assert address.password == password
    assert "password=" not in repr(address).replace("sentinel_password", "").replace("password_file", "")


def test_files_of_the_settings_are_used_where_the_url_names_none() -> None:
    def made(url: str, ca_file: Path, key_file: Path | None = None) -> Address:
        owner = Owner("a", "1")
        plane = open_plane(url, pool="p", owner=owner, rules=Rules(), ca_file=ca_file, key_file=key_file)
        address: Address = plane._link._address  # type: ignore[attr-defined]
        return address

    spaced = Path("/a file&more.pem")
    assert made("rediss://h", ca_file=spaced).ca == spaced
    assert made("rediss://h?ca=/mine", ca_file=spaced, key_file=Path("/k")).ca == Path("/mine")
    assert made("rediss://h?ca=/mine", ca_file=spaced, key_file=Path("/k")).key == Path("/k")
    assert made("rediss+sentinel://h/p", ca_file=spaced).primary == "p"


@pytest.mark.parametrize(
    ("info", "primary", "unguarded"),
    [
        ("role:master\r\nconnected_slaves:0\r\n", True, False),
        ("role:master\r\nconnected_slaves:2\r\n", True, True),
        ("role:master\r\nconnected_slaves:2\r\nmin_slaves_good_slaves:1\r\n", True, False),
        ("role:slave\r\nconnected_slaves:0\r\n", False, False),
        ("", True, False),
    ],
)
def test_what_a_server_says_of_its_replicas(info: str, primary: bool, unguarded: bool) -> None:
    told = read_replication(info)
    assert (told.primary, told.unguarded) == (primary, unguarded)
