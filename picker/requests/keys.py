"""What makes two requests the same logical one: a header that names it, and the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import xxhash


def digest(body: bytes) -> str:
    """128 bits of the body as 32 hexadecimal digits (xxh3): fast, and not a secret."""
    return str(xxhash.xxh3_128_hexdigest(body))


def request_key(pool: str, headers: Mapping[str, str], names: Sequence[str], body: bytes | None) -> str:
    """
    The key by which a retry is recognised, 32 hexadecimal digits; empty: not to be recognised.

    Made of the pool, the first header of ``names`` that is present, and the body. Clients reuse ids, so an id without
    a body that we saw joins nothing.
    """
    if body is None:
        return ""
    for name in names:
        value = headers.get(name.lower())
        if value:
            named = value.encode(errors="replace")
            return digest(b"%b%d:%b32:%b" % (_scope(pool, name), len(named), named, digest(body).encode()))
    return ""


@lru_cache(maxsize=64)
def _scope(pool: str, name: str) -> bytes:
    """What the keys of one pool and one header begin with: there are as many as the settings name."""
    texts = (pool.encode(errors="replace"), name.lower().encode(errors="replace"))
    return b"".join(b"%d:%b" % (len(text), text) for text in texts)
