"""What makes two requests the same logical one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from picker.requests.keys import digest, request_key

NAMES = ("X-Request-Id", "x-other")
KEY = request_key("ns/a", {"x-request-id": "1"}, NAMES, b"body")


def test_the_same_request_gives_the_same_key() -> None:
    assert request_key("ns/a", {"x-request-id": "1", "x-other": "2"}, NAMES, b"body") == KEY
    assert len(KEY) == 32


def test_pool_header_value_and_body_all_count() -> None:
    others = {
        request_key("ns/b", {"x-request-id": "1"}, NAMES, b"body"),
        request_key("ns/a", {"x-request-id": "2"}, NAMES, b"body"),
        request_key("ns/a", {"x-request-id": "1"}, NAMES, b"other"),
        request_key("ns/a", {"x-other": "1"}, NAMES, b"body"),
        request_key("ns/a1", {"x-request-id": ""}, ("x-request-id", "x-other"), b"body"),
    }
    assert KEY not in others
    assert len(others) == 5


def test_without_an_id_or_without_a_body_nothing_is_joined() -> None:
    assert request_key("ns/a", {}, NAMES, b"body") == ""
    assert request_key("ns/a", {"x-request-id": ""}, NAMES, b"body") == ""
    assert request_key("ns/a", {"x-request-id": "1"}, NAMES, None) == ""


def test_a_header_that_is_no_utf8_makes_a_key() -> None:
    assert len(request_key("ns/a", {"x-request-id": "\udcff"}, NAMES, b"body")) == 32


def test_the_digest_is_the_public_xxh3_of_128_bits() -> None:
    assert digest(b"") == "99aa06d3014798d86001c324468d497f"


@given(
    st.text(max_size=9),
    st.text(min_size=1, max_size=9),
    st.text(min_size=1, max_size=9),
    st.binary(max_size=40),
)
def test_a_key_is_made_as_written_here_so_that_replicas_of_all_versions_agree(
    pool: str, name: str, value: str, body: bytes
) -> None:
    parts = (pool, name.lower(), value, digest(body))
    encoded = [part.encode(errors="replace") for part in parts]
    whole = b"".join(b"%d:" % len(part) + part for part in encoded)
    assert request_key(pool, {name.lower(): value}, (name,), body) == digest(whole)
