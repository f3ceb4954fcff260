"""
Reads typed fields out of a client's JSON object, and says in words what is wrong with one.

As lenient as the engines are (null is absent, ``"16"`` is a number), so that nothing is refused here that they serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from picker.requests.ask import BadRequest

MAX_NAME = 1024
"""Longest model name and salt, in characters."""

_WORDS = {
    "true": True,
    "false": False,
    "1": True,
    "0": False,
    "yes": True,
    "no": False,
    "on": True,
    "off": False,
}


def kind(value: object) -> str:
    """The JSON name of a value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


class Fields:
    """One JSON object. Every method reads a field and raises `BadRequest` naming it."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def lacks(self, names: frozenset[str]) -> bool:
        """Whether there is no field of these names, not even a null one."""
        return names.isdisjoint(self._values)

    def get(self, name: str) -> Any:
        """The value as it is; None where absent or null."""
        return self._values.get(name)

    def text(self, name: str, limit: int = MAX_NAME) -> str:
        """A string of at most ``limit`` characters; empty where absent."""
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BadRequest(f"{name} must be a string, not {kind(value)}.", name)
        if len(value) > limit:
            raise BadRequest(f"{name} has {len(value)} characters; at most {limit} are allowed.", name)
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean, or a word or number that engines take for one."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float) and value in {0, 1}:
            return bool(value)
        if isinstance(value, str) and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        raise BadRequest(f"{name} must be true or false.", name)

    def count(self, name: str, *, low: int, high: int) -> int | None:
        """A whole number from ``low`` to ``high``; None where absent."""
        value = self._values.get(name)
        if value is None:
            return None
        number = _whole(value)
        if number is None:
            raise BadRequest(f"{name} must be a whole number, not {kind(value)}.", name)
        if not low <= number <= high:
            raise BadRequest(f"{name} must be between {low} and {high}.", name)
        return number

    def objects(self, name: str, *, limit: int) -> Sequence[Mapping[str, Any]] | None:
        """A list of objects; None where absent or empty."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise BadRequest(f"{name} must be an array of objects.", name)
        if len(value) > limit:
            raise BadRequest(f"{name} has {len(value)} entries; at most {limit} are allowed.", name)
        return value or None

    def mapping(self, name: str) -> dict[str, Any]:
        """A copy of an object; empty where absent."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise BadRequest(f"{name} must be an object, not {kind(value)}.", name)
        return dict(value)


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return None
