"""Literals of compressed headers, where they lie in a block: RFC 7541 5 and 6.2."""

from __future__ import annotations

from hpack import HPACKError
from hpack.hpack import decode_integer

INDEXED, LONG_INDEXED, WITH_INDEXING, KIND, RESIZE = 0x80, 0xFF, 0x40, 0xE0, 0x20
"""First bytes of a header in a block: RFC 7541 6."""
HUFFMAN = 0x80
"""Bit of a string's first byte: RFC 7541 5.2."""
LONG_VALUE = 1_024
"""Least bytes of a value that is not decoded where nothing asks for it."""


def literals_end(block: bytes, at: int) -> int:
    """Where literals that begin there are followed by something else; a long one, with what enters no table, is alone.

    The block's end where they are not to be understood.
    """
    end, begin = len(block), at
    while at < end:
        first = block[at]
        if first >= INDEXED:
            return at if INDEXED < first < LONG_INDEXED else end
        most = 0x3F if first & WITH_INDEXING else 0x0F
        if first & KIND == RESIZE or at + 1 == end:
            return end
        # most have a name in the table, under a number of one byte, and a value whose length has one byte
        if first & most in (0, most) or block[at + 1] & 0x7F == 0x7F:
            after = _literal_end(block, at)
            if after > end:
                return end
            if after - at >= LONG_VALUE and not first & WITH_INDEXING:
                return after if at == begin else at
            at = after
        else:
            at += 2 + (block[at + 1] & 0x7F)
    return end


def _literal_end(block: bytes, at: int) -> int:
    """Where a literal of any form ends; past the block's end where that is not to be understood."""
    try:
        number, taken = decode_integer(block[at : at + 16], 6 if block[at] & WITH_INDEXING else 4)
        at += taken
        return string_at(block, at if number else string_at(block, at)[1])[1]
    except (HPACKError, IndexError):
        return len(block) + 1


def string_at(block: bytes, at: int) -> tuple[int, int]:
    """Where the bytes of a string begin, and where they end."""
    size, taken = decode_integer(block[at : at + 16], 7)
    return at + taken, at + taken + size
