"""What is kept of one kind of objects, told by lists and watches. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from discovery.source import Counts

log = structlog.get_logger(__name__)

T = TypeVar("T")

MAX_OBJECTS = 20_000
"""Most objects of one kind that are kept; a pool of so many pods is no pool of one picker."""
MAX_NAME = 512
MAX_FAULT = 500
"""So much is kept of what is wrong with an object, in characters."""


@dataclass(slots=True)
class WatchCounts(Counts):
    """What became of lists and watches, since the start. A look is a list or a watch."""

    lists: int = 0
    """Lists that were answered whole."""
    events: int = 0
    """Objects that watches told of."""
    bookmarks: int = 0
    expired: int = 0
    """Times that the server no longer knew where we were: everything was listed anew."""
    unusable: int = 0
    """Objects that make no sense: what was last known of each stands."""
    overflow: int = 0
    """Objects beyond the most that are kept."""


class Kept(Generic[T]):
    """
    The objects of one kind, by ``namespace/name``.

    Args:
        read: From JSON to what is kept of an object; None: nothing. Raises ValueError for what makes no sense: what was
            last known of it stands.
        counts: Where it counts.

    """

    def __init__(self, read: Callable[[Mapping[str, Any]], T | None], counts: WatchCounts) -> None:
        self.objects: dict[str, T] = {}
        self.unusable: dict[str, str] = {}
        """What is wrong with objects that make no sense, by name."""
        self._read, self._counts = read, counts
        self._names: set[str] = set()

    def replace(self, entries: Sequence[Mapping[str, Any]]) -> bool:
        """Take over a whole list; whether that changed anything."""
        before = dict(self.objects)
        named = {name: entry for entry in entries if (name := _name(entry))}
        for name in self._names - named.keys():
            self._drop(name)
        for name, entry in named.items():
            self._keep(name, entry)
        return before != self.objects

    def change(self, entry: Mapping[str, Any], *, deleted: bool) -> bool:
        """Take over what a watch told of one object; whether that changed anything."""
        self._counts.events += 1
        name = _name(entry)
        if not name:
            self._counts.unusable += 1
            return False
        before = self.objects.get(name)
        if deleted:
            self._drop(name)
        else:
            self._keep(name, entry)
        return before != self.objects.get(name)

    def _keep(self, name: str, entry: Mapping[str, Any]) -> None:
        if name not in self._names and len(self._names) >= MAX_OBJECTS:
            self._counts.overflow += 1
            return
        self._names.add(name)
        try:
            kept = self._read(entry)
        except ValueError as error:
            self._counts.unusable += 1
            fault = str(error)[:MAX_FAULT]
            if self.unusable.get(name) != fault:
                log.warning("object unusable, what was last known of it stands", name=name, reason=fault)
            self.unusable[name] = fault
            return
        self.unusable.pop(name, None)
        if kept is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = kept

    def _drop(self, name: str) -> None:
        self._names.discard(name)
        self.objects.pop(name, None)
        self.unusable.pop(name, None)


def _name(entry: Mapping[str, Any]) -> str:
    """``namespace/name``; empty where it has none, or one that no server gives."""
    metadata = entry.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    if (
        not isinstance(name, str)
        or not isinstance(namespace, str)
        or not 0 < len(name) + len(namespace) < MAX_NAME
    ):
        return ""
    return f"{namespace}/{name}" if name else ""
