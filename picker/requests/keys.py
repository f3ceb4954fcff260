"""What makes two requests the same logical one: a header that names it, and the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
            pool_bytes, name_bytes = pool.encode(errors="replace"), name.lower().encode(errors="replace")
            value_bytes, body_bytes = value.encode(errors="replace"), digest(body).encode()
            return digest(
                b"%d:%b%d:%b%d:%b%d:%b" % (
                    len(pool_bytes), pool_bytes, len(name_bytes), name_bytes,
                    len(value_bytes), value_bytes, len(body_bytes), body_bytes,
                )
            )  # fmt: skip
    return ""
