"""Values written as JSON by chat templates: tools and the arguments of calls, which come again with each turn."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

import orjson

MOST: Final = 1_024
LONGEST: Final = 4_096
"""So many values are remembered, of at most so many bytes as JSON: 10 MB."""

_write = json.JSONEncoder(ensure_ascii=False).encode


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter ``tojson`` as transformers has it."""
    if ensure_ascii or indent is not None or separators is not None or sort_keys:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
    if type(value) is dict:
        try:
            short = orjson.dumps(value)
        except TypeError:  # no JSON to this library, and maybe to the other
            return _write(value)
        # numbers that are none become null here, and words there
        if len(short) <= LONGEST and b"null" not in short:
            return _written(short)
    return _write(value)


@lru_cache(maxsize=MOST)
def _written(short: bytes) -> str:
    return _write(orjson.loads(short))
