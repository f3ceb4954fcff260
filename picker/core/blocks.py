"""Tokens to chained block hashes: one number stands for a block and everything before it.

The scheme is Dynamo's public one (``public-xxh3-v1``), so that its workers' events and its tools agree with ours:

- a block's own hash is ``xxh3_64(tokens as little-endian u32, seed)``; a last block that is not full has none;
- the seed is 1337 for the plain base model; adapters and cache salts change it (`chain_seed`);
- media in a block are appended to its tokens: their u64 hashes, sorted, little-endian (`block_hash`);
- a sequence hash is the block's own hash for the first block, then ``xxh3_64(previous + own, 1337)``, both as
  little-endian u64.

The hash is public and not cryptographic: a made-up collision can misroute a request, never answer it wrongly.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from xxhash import xxh3_64_intdigest, xxh3_128_digest

SEED = 1337
"""Seed of blocks of the base model without a salt, and of every chaining step."""

STRETCHES = (32, 16, 8, 4)
"""Blocks of the stretches that `Chains` remembers: as many long ones as there are, then shorter ones up to the end."""

_U32 = 0xFFFF_FFFF
_U64 = 0xFFFF_FFFF_FFFF_FFFF
_PAIR = struct.Struct("<QQ")

assert array("I").itemsize == 4, "tokens are hashed as 32-bit words; this platform's unsigned int is wider"


def chain_seed(lora: str = "", salt: str = "") -> int:
    """The seed under which all blocks of one adapter and one cache salt are hashed.

    An adapter adds ``xxh3_64(name, 0)`` to 1337, a salt adds ``xxh3_64(salt, 1)``, all mod 2^64, names as UTF-8; an
    empty name is none. Whatever turns an engine's events into hashes must use this function.
    """
    if not lora and not salt:
        return SEED
    seed = SEED
    if lora:
        seed += int(xxh3_64_intdigest(lora.encode("utf-8", "surrogatepass"), 0))
    if salt:
        seed += int(xxh3_64_intdigest(salt.encode("utf-8", "surrogatepass"), 1))
    return seed & _U64


def tail_seed(lora: str = "", salt: str = "") -> int:
    """The seed of blocks that are made of more than an engine's tokens; no engine's block is hashed under it.

    It is `chain_seed` plus ``xxh3_64("tail", 2)``, mod 2^64: such a block equals an announced one by chance only.
    """
    return (chain_seed(lora, salt) + int(xxh3_64_intdigest(b"tail", 2))) & _U64


def sequence_hashes(
    tokens: Sequence[int] | array[int], block_size: int, *, lora: str = "", salt: str = ""
) -> list[int]:
    """The u64 sequence hashes of a prompt's full blocks, first block first.

    Raises:
        ValueError: a token does not fit 32 unsigned bits, or ``block_size`` is below 1.
    """
    return extend_hashes(None, tokens, block_size, seed=chain_seed(lora, salt))


def extend_hashes(
    parent: int | None, tokens: Sequence[int] | array[int], block_size: int, *, seed: int
) -> list[int]:
    """The u64 sequence hashes of the full blocks in ``tokens``, which follow the block whose hash is ``parent``.

    ``parent`` None starts a chain. ``seed`` is `chain_seed` of the adapter and salt of the whole chain.

    Raises:
        ValueError: a token does not fit 32 unsigned bits, or ``block_size`` is below 1.
    """
    if block_size < 1:
        raise ValueError(f"block size {block_size}: must be at least 1 token")
    data, width = _words(tokens).tobytes(), 4 * block_size
    return _chained(parent, data, len(data) - len(data) % width, width, seed)


def _chained(parent: int | None, data: bytes, end: int, width: int, seed: int) -> list[int]:
    digest, pack = xxh3_64_intdigest, _PAIR.pack
    owns = [digest(data[start : start + width], seed) for start in range(0, end, width)]
    if not owns:
        return []
    last = owns[0] if parent is None else digest(pack(parent, owns[0]), SEED)
    hashes = [last]
    for own in owns[1:]:
        last = digest(pack(last, own), SEED)
        hashes.append(last)
    return hashes


class Chains:
    """`sequence_hashes` that remembers stretches of chains: what prompts begin with alike is hashed once.

    A stretch is known by where it begins and by 128 bits of xxh3 over its tokens under a seed that no client knows: two
    made up to collide would let one client's prompt be taken for another's, and misroute it.

    Args:
        most: Most blocks in the stretches that are remembered; the oldest go first.
        secret: The seed, 64 bits drawn at random at the start.
    """

    __slots__ = ("_begin", "_blocks", "_known", "_most", "_secret")

    def __init__(self, most: int, *, secret: int) -> None:
        self._most, self._secret = most, secret
        self._begin = self._beginning(64, SEED)
        """Of the block size and seed asked for last."""
        self._known: OrderedDict[bytes, list[int]] = OrderedDict()
        self._blocks = 0

    def __len__(self) -> int:
        """Blocks."""
        return self._blocks

    def hashes(
        self, tokens: Sequence[int] | array[int], block_size: int, *, lora: str = "", salt: str = ""
    ) -> list[int]:
        """As `sequence_hashes`."""
        if block_size < 1:
            raise ValueError(f"block size {block_size}: must be at least 1 token")
        data, width, seed = _words(tokens).tobytes(), 4 * block_size, chain_seed(lora, salt)
        end = len(data) - len(data) % width
        hashes: list[int] = []
        last: int | None = None
        at = 0
        begin = self._begin
        if begin[0] != width or begin[1] != seed:
            begin = self._begin = self._beginning(width, seed)
        _, _, here, behind = begin
        for blocks in STRETCHES:
            long = blocks * width
            while end - at >= long:
                stretch = data[at : at + long]
                key = xxh3_128_digest(stretch, here)
                known = self._known.get(key)
                if known is None:
                    known = _chained(last, stretch, long, width, seed)
                    self._keep(key, known)
                hashes += known
                last = known[-1]
                here = behind ^ last
                at += long
        if at < end:
            hashes += _chained(last, data[at:end], end - at, width, seed)
        return hashes

    def _beginning(self, width: int, seed: int) -> tuple[int, int, int, int]:
        """Bytes of a block, the chain's seed; the seed of the first stretch's key, and what makes those of the others.

        Where a stretch begins goes into the seed of its key, and no client can tell how.
        """
        first = xxh3_64_intdigest(_PAIR.pack(width, seed), self._secret)
        return width, seed, int(first), int(xxh3_64_intdigest(_PAIR.pack(seed, width), self._secret))

    def _keep(self, key: bytes, hashes: list[int]) -> None:
        self._known[key] = hashes
        self._blocks += len(hashes)
        while self._blocks > self._most:
            self._blocks -= len(self._known.popitem(last=False)[1])


def block_hash(tokens: Sequence[int] | array[int], *, seed: int = SEED, media: Iterable[int] = ()) -> int:
    """One block's own u64 hash; ``media`` are the u64 hashes of the images and the like that lie in it, in any order.

    Raises:
        ValueError: a token does not fit 32 unsigned bits, or a media hash does not fit 64.
    """
    extra = sorted(media)
    if extra and not 0 <= extra[0] <= extra[-1] <= _U64:
        raise ValueError(f"media hashes {extra[0]}..{extra[-1]}: each must lie in 0..{_U64}")
    return int(xxh3_64_intdigest(_words(tokens).tobytes() + struct.pack(f"<{len(extra)}Q", *extra), seed))


def chain(parent: int | None, own: int) -> int:
    """The sequence hash of a block whose own hash is ``own`` and that follows ``parent`` (None: the first block)."""
    return own if parent is None else int(xxh3_64_intdigest(_PAIR.pack(parent, own), SEED))


def _words(tokens: Sequence[int] | array[int]) -> array[int]:
    """The tokens as little-endian 32-bit words."""
    if isinstance(tokens, array) and tokens.typecode == "I":
        words = tokens
    else:
        try:
            words = array("I", tokens)
        except (OverflowError, TypeError):
            raise ValueError(_fault(tokens)) from None
    if sys.byteorder == "big":
        words = array("I", words)
        words.byteswap()
    return words


def _fault(tokens: Iterable[object]) -> str:
    for position, token in enumerate(tokens):
        if not isinstance(token, int) or not 0 <= token <= _U32:
            return f"token {token!r:.40} at position {position}: token ids are whole numbers in 0..{_U32}"
    return "the token ids are not a sequence of whole numbers"
