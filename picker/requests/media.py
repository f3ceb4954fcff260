"""
What makes two media equal, told from the data that the client sent.

Nothing is fetched and nothing decoded: a picture is the text of its base64, whether it comes as a ``data:`` URL or in a
block of its own; else its URL or its file's id. A ``uuid`` that the client gives, as vLLM allows, stands for the data.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import orjson
import xxhash

from picker.requests.ask import Ids
from picker.requests.content import MEDIA_TOKENS

_KINDS = {
    "image": "image", "image_url": "image", "input_image": "image",
    "input_audio": "audio", "audio_url": "audio", "audio": "audio",
    "video": "video", "video_url": "video",
    "file": "file", "input_file": "file", "document": "file",
}  # fmt: skip
"""Types of parts, and what kind of medium they hold."""
_HOLDERS = ("source", "image_url", "input_audio", "audio_url", "video_url", "file")
"""Fields of a part that hold the medium, as an object or as its URL."""
_VALUES = ("data", "file_data", "url", "image_url", "file_url", "file_id")
"""Fields that hold its data or name it, the surest first."""
_WORDS_OF_A_DIGEST = 4


def identity(part: Mapping[str, Any]) -> bytes:
    """
    16 bytes that are equal for equal media (xxh3, 128 bits); never raises.

    A part of a kind that is not known is what it says, word for word.
    """
    name = part.get("type")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        return _word_for_word(part)
    inner = [part[field] for field in _HOLDERS if part.get(field)]
    holders = [*(each for each in inner if isinstance(each, dict)), part]
    for holder in reversed(holders):
        named = holder.get("uuid")
        if isinstance(named, str) and named:
            return _digest(f"{kind} uuid", named)
    values = [each for each in inner if isinstance(each, str)]
    values += [
        value for field in _VALUES for holder in holders if isinstance(value := holder.get(field), str)
    ]
    if value := next(filter(None, values), ""):
        return _digest(kind, _payload(value))
    return _word_for_word(part)


def words(digest: bytes) -> Ids:
    """What stands for a medium among token ids: as many words as it is guessed to weigh, made of its identity."""
    ids = array("I")
    ids.frombytes(digest * (MEDIA_TOKENS // _WORDS_OF_A_DIGEST))
    return ids


def _payload(value: str) -> str:
    """The base64 text of a ``data:`` URL, whatever type it claims to be; any other value as it is."""
    if value[:5].lower() != "data:":
        return value
    comma = value.find(",", 0, 256)
    return value if comma < 0 else value[comma + 1 :]


def _digest(kind: str, value: str) -> bytes:
    digest = xxhash.xxh3_128(kind.encode() + b"\0")
    digest.update(value.encode(errors="surrogatepass"))
    return bytes(digest.digest())


def _word_for_word(part: Mapping[str, Any]) -> bytes:
    try:
        return bytes(xxhash.xxh3_128_digest(b"part\0" + orjson.dumps(part, option=orjson.OPT_SORT_KEYS)))
    except (TypeError, ValueError):  # nested too deep
        return bytes(16)
