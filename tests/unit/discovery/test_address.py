"""One spelling for each address, and a reason for what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.address import AddressError, read_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        (" Worker-1.Pool.SVC.:08000 ", "worker-1.pool.svc:8000"),
        ("[::1]:8000", "[::1]:8000"),
        ("[2001:DB8:0:0::1]:80", "[2001:db8::1]:80"),
        ("under_score:1", "under_score:1"),
    ],
)
def test_an_address_has_one_spelling(text: str, address: str) -> None:
    assert read_address(text) == address
    assert read_address(address) == address


def test_a_missing_port_is_filled_in_where_there_is_a_default() -> None:
    assert read_address("a", 90) == "a:90"
    assert read_address("fe80::1", 90) == "[fe80::1]:90"
    assert read_address("[fe80::1]", 90) == "[fe80::1]:90"
    with pytest.raises(AddressError, match="no port"):
        read_address("fe80::1")


@pytest.mark.parametrize(
    "text",
    [
        "", ":80", "a", "a:", "a:0", "a:65536", "a:-1", "a:\uff18\uff10", "a:1e3", "a b:80", "-a:80", "a..b:80",
        "1.2.3:80",
        "1.2.3.400:80", "[::1]80", "[::1", "[1.2.3.4]:80", "[:::1]:80", "[a]:80", "http://a:80", "a:80/x", "a:80@1",
        "a\n:80", "x" * 300 + ":80", "[fe80::1%eth0]:80", "[fe80::1%eth0\n]:80",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        read_address(text)
    assert len(str(caught.value)) < 800


@given(st.text(max_size=60))
def test_any_text_is_an_address_of_one_spelling_or_refused(text: str) -> None:
    try:
        address = read_address(text, 80)
    except AddressError:
        return
    assert read_address(address) == address
    assert "@" not in address
    assert not any(letter.isspace() for letter in address)
