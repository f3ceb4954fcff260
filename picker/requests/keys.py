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
            parts = (pool, name.lower(), value, digest(body))
            framed = b"".join(
                b"%d:%s" % (len(part), part) for part in (p.encode(errors="replace") for p in parts)
            )
            return digest(framed)
    return ""
