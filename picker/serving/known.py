"""Headers of a gateway's messages, out of their bytes: most of them come with every request, and are read once.

A header is remembered by its bytes; headers that keep following each other are remembered together, as a run, so that a
message takes as many steps as it has headers that are new. Nothing of secrets is remembered, and all of it is bounded.
"""

from __future__ import annotations

from functools import lru_cache

from picker.serving.reading import MAX_HEADERS, is_control
from picker.serving.wire.extproc_pb2 import HeaderValue
from picker.settings import SECRET_HEADERS

KNOWN_ENTRIES = 2_048
KNOWN_ENTRY_SIZE = 128
"""So many headers, all shorter, are remembered as they were read."""
KNOWN_RUNS = 256
LONGEST_RUN = 64
"""Headers of one run."""
WORTH_LEARNING = 4
"""Known headers of one message that are part of no run, from which on runs are looked for in it."""
LEARN_EACH = 8
"""Runs are looked for in one of so many messages: where clients have nothing in common, looking costs little."""

_SECRETS = frozenset((*SECRET_HEADERS, "set-cookie"))
_SECRET_WORDS = ("token", "secret", "password", "credential", "key", "cookie", "session", "jwt")
"""Headers of which nothing is remembered: these, and what has such a word in its name."""
_FIELD, _KEY, _RAW = 0x0A, 0x0A, 0x1A

Entry = tuple[str, str]
"""Name and value."""
Run = tuple[bytes, tuple[Entry, ...], tuple[bytes, ...]]
"""All of its bytes, what they say, and the bytes of each header."""

_entries: dict[bytes, Entry] = {}
_runs: dict[bytes, Run] = {}
"""By the bytes of their first header."""
_unlearnt = 0
_decode_entry = HeaderValue.FromString


class UnusualError(Exception):
    """The bytes are not laid out as gateways lay them out."""


def headers(data: bytes, at: int, stop: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """The headers that fill the bytes between, and the names of the control headers among them.

    Raises:
        UnusualError, IndexError, DecodeError, UnicodeDecodeError: where only the protobuf runtime can tell.
    """
    pairs: list[Entry] = []
    control: dict[str, None] = {}
    alone: list[int] = []
    while at < stop:
        # the second byte tells the length of a short one; of no other are all the bytes known
        after = at + 2 + data[at + 1]
        field = data[at:after]
        run = _runs.get(field)
        if run is not None and data.startswith(run[0], at):
            pairs += run[1]
            at += len(run[0])
            continue
        pair = _entries.get(field)
        if pair is None:
            pair, controls, after = _entry(data, at)
            if controls:
                control[pair[0]] = None
        else:
            alone.append(at)
        pairs.append(pair)
        at = after
    if at != stop or len(pairs) > MAX_HEADERS:
        raise UnusualError
    if len(alone) >= WORTH_LEARNING:
        _look_at(data, alone)
    return dict(pairs), tuple(control) if control else ()


def length(data: bytes, at: int) -> tuple[int, int]:
    """A length of one to four bytes, and where it ends."""
    size = data[at]
    if size < 0x80:
        return size, at + 1
    size &= 0x7F
    for place, shift in ((at + 1, 7), (at + 2, 14), (at + 3, 21)):
        byte = data[place]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, place + 1
    raise UnusualError


def _entry(data: bytes, at: int) -> tuple[Entry, bool, int]:
    """The header that begins there, whether it is a control header, and where it ends; remembered for the next time.

    Not where it is long, a secret, or a control header.
    """
    if data[at] != _FIELD:
        raise UnusualError
    size, start = length(data, at + 1)
    after = start + size
    value_at = start + 4 + data[start + 1] if size > 4 else 0
    # a name and a value below 128 bytes each, as nearly all are; all else is left to the runtime
    if (
        0 < value_at <= after
        and data[start] == _KEY
        and data[start + 1] < 0x80
        and data[value_at - 2] == _RAW
        and data[value_at - 1] == after - value_at < 0x80
    ):
        name, controls, secret = _name(data[start + 2 : value_at - 2])
        pair = name, data[value_at:after].decode("utf-8", "replace")
    else:
        header = _decode_entry(data[start:after])
        name, raw = header.key.lower(), header.raw_value
        controls, secret = is_control(name), _is_secret(name)
        pair = name, raw.decode("utf-8", "replace") if raw else header.value
    if size < KNOWN_ENTRY_SIZE and not controls and not secret:
        if len(_entries) >= KNOWN_ENTRIES:
            _entries.clear()
        _entries[data[at:after]] = pair
    return pair, controls, after


@lru_cache(maxsize=512)
def _name(key: bytes) -> tuple[str, bool, bool]:
    """A header's name, whether it is a control header, and whether its value is a secret."""
    name = key.decode().lower()
    return name, is_control(name), _is_secret(name)


def _is_secret(name: str) -> bool:
    """Whether a header's value is one, or may be."""
    return name in _SECRETS or any(word in name for word in _SECRET_WORDS)


def _look_at(data: bytes, alone: list[int]) -> None:
    """Look for runs among known headers that begin at these places, now and then."""
    global _unlearnt  # noqa: PLW0603 - one memory for the whole process, as that of the headers
    _unlearnt += 1
    if _unlearnt % LEARN_EACH:
        return
    stretch: list[bytes] = []
    end = -1
    for at in alone:
        if at != end:
            _learn(stretch)
            stretch = []
        end = at + 2 + data[at + 1]
        stretch.append(data[at:end])
    _learn(stretch)


def _learn(fields: list[bytes]) -> None:
    """Remember headers that followed each other; of two runs that begin alike only what they share.

    So a run never grows: it ends before what differs from one message to the next, where others begin.
    """
    while len(fields) > 1:
        fields, rest = fields[:LONGEST_RUN], fields[LONGEST_RUN:]
        known = _runs.get(fields[0])
        if known is not None:
            shared = _shared(known[2], fields)
            fields, rest = fields[:shared], fields[shared:] + rest
        elif len(_runs) >= KNOWN_RUNS:
            _runs.clear()
        pairs = [_entries.get(field) for field in fields]
        if None not in pairs:
            _runs[fields[0]] = (
                b"".join(fields),
                tuple(pair for pair in pairs if pair is not None),
                tuple(fields),
            )
        fields = rest


def _shared(one: tuple[bytes, ...], other: list[bytes]) -> int:
    """How many headers both begin with."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
