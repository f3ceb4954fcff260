"""The scripts and the keys they are given."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import quote

from stateplane.booking import SCHEMA, Rules
from stateplane.schema import oldest_of
from stateplane.servingtime import milliseconds

_SHARED = {
    "book": "place", "select": "place", "reclaim": "place",
    "move": "owned", "adjust": "owned", "drain": "owned",
    "release": "ending", "beat": "ending", "reap": "ending", "leave": "ending",
    "rebooked": "", "mark": "", "sums": "",
}  # fmt: skip
"""Script -> what it shares with others, beside the prelude that all but ``begin`` have."""
_KEYS = {
    "meta": "hash", "books": "hash", "sums": "hash", "drains": "zset", "active": "zset", "lapses": "hash",
    "attempts": "hash", "tombs": "hash", "buried": "zset", "owners": "hash", "leases": "zset", "stream": "stream",
}  # fmt: skip
"""Each key and its type, in the order in which the scripts are given them."""
TYPES = tuple(_KEYS.values())

HISTORY = 65_536
"""Changes kept for watchers, about; one that is further behind gets a ``Gap``."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script: its text and the name that the server gives it."""

    text: str
    sha: str


def _script(schema: int, *parts: str) -> Script:
    folder = files(__package__).joinpath("lua")
    head = f"local NEWEST,OLDEST={schema},{oldest_of(schema)} -- the schemas that are read"
    text = "\n".join([head, *(folder.joinpath(f"{part}.lua").read_text("utf-8") for part in parts)])
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def read_scripts(schema: int = SCHEMA) -> dict[str, Script]:
    """Every script by its name, for a program that reads that schema and the one before."""
    scripts = {"begin": _script(schema, "begin")}
    for name, shared in _SHARED.items():
        scripts[name] = _script(schema, *filter(None, ("prelude", shared, name)))
    return scripts


class Keys:
    """The keys of one pool, all in one hash slot: a pool lives on one shard, and pools never meet."""

    def __init__(self, pool: str) -> None:
        self.tag = f"picker:{{{quote(pool, safe='/:.@ ')}}}"
        self.all = tuple(f"{self.tag}:{name}" for name in _KEYS)

    def __getitem__(self, name: str) -> str:
        return f"{self.tag}:{name}"


def common_arguments(owner: str, rules: Rules) -> tuple[str | int, ...]:
    """What every script but ``begin`` is given after the epoch."""
    superseded = -1 if rules.superseded_drain is None else milliseconds(rules.superseded_drain)
    return (
        owner,
        milliseconds(rules.lease),
        milliseconds(rules.heartbeat),
        milliseconds(rules.drain),
        superseded,
        milliseconds(rules.tombstone),
        HISTORY,
    )


__all__ = ["HISTORY", "TYPES", "Keys", "Script", "common_arguments", "read_scripts"]
