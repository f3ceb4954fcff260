"""How a mutant gets into the product: it exchanges a function or a line of a script, and fails if that is gone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from inspect import Parameter, Signature, signature
from typing import Any

from stateplane.redis import scripts


class MisfitError(Exception):
    """The product no longer has what the mutant breaks: the mutant has to be written anew."""


def exchange(place: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put ``make(what stood there)`` in the place of an attribute. Raises MisfitError."""
    rightly = vars(place).get(name)
    if rightly is None:
        raise MisfitError(f"{place.__name__} has no {name}")
    wrongly = make(rightly)
    try:
        _as_called(wrongly, signature(rightly))
    except TypeError as error:
        raise MisfitError(f"{place.__name__}.{name} is called otherwise now: {error}") from error
    setattr(place, name, wrongly)


def _as_called(wrongly: Any, rightly: Signature) -> None:
    """Raises TypeError where it cannot be called with all that the right one takes."""
    kinds = rightly.parameters.values()
    placed = [
        each.name
        for each in kinds
        if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    named = {each.name: None for each in kinds if each.kind is Parameter.KEYWORD_ONLY}
    signature(wrongly).bind(*placed, **named)


def exchange_lua(part: str, line: str, other: str) -> None:
    """Exchange a line of a script of the Redis plane, in every script that has that part. Raises MisfitError."""
    text = files("stateplane.redis").joinpath("lua", f"{part}.lua").read_text("utf-8")
    if text.count(line) != 1:
        raise MisfitError(f"{part}.lua has {text.count(line)} times, not once: {line}")

    def make(rightly: Callable[..., scripts.Script]) -> Callable[..., scripts.Script]:
        def wrongly(schema: int, *parts: str) -> scripts.Script:
            script = rightly(schema, *parts)
            if part not in parts:
                return script
            broken = script.text.replace(line, other)
            return scripts.Script(broken, hashlib.sha1(broken.encode(), usedforsecurity=False).hexdigest())

        return wrongly

    exchange(scripts, "_script", make)
