"""Lists of one kind, read in pages, at the first of its places that the server has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from discovery.kubernetes import keeping
from discovery.kubernetes.api import Api, ApiError
from discovery.kubernetes.keeping import WatchCounts

log = structlog.get_logger(__name__)

PAGE = 500
"""Objects of one page."""


class Listed(NamedTuple):
    """A whole list."""

    path: str
    """Where it was found."""
    entries: Sequence[Mapping[str, Any]]
    version: str
    """From which a watch goes on."""


async def read_list(api: Api, kinds: Sequence[str], query: Mapping[str, str], counts: WatchCounts) -> Listed:
    """
    Read everything of a kind.

    Args:
        api: The server.
        kinds: Paths of the kind, the one to try first in front.
        query: Selectors.
        counts: Where objects beyond the most are counted.

    Raises:
        ApiError: the server is away, says no, or with 404: it knows none of the paths.

    """
    missing = ApiError(404, "the server does not know the kind")
    for path in kinds:
        if path != kinds[0] and not await _served(api, path):
            continue
        try:
            entries, version = await _pages(api, path, query, counts)
        except ApiError as error:
            if error.status != 404:
                raise
            missing = error
            continue
        return Listed(path, entries, version)
    raise missing


async def _served(api: Api, path: str) -> bool:
    """Whether the server has this version of the kind; everybody may ask that, so that nobody is denied."""
    group, _, plural = path.partition("/namespaces/")
    try:
        page = await api.get(group)
    except ApiError as error:
        if error.status in {403, 404}:
            return False
        raise
    resources = page.get("resources")
    return any(
        isinstance(each, dict) and each.get("name") == plural.rpartition("/")[2]
        for each in (resources if isinstance(resources, list) else ())
    )


async def _pages(
    api: Api, path: str, query: Mapping[str, str], counts: WatchCounts
) -> tuple[list[Mapping[str, Any]], str]:
    entries: list[Mapping[str, Any]] = []
    following = ""
    while True:
        more = {"continue": following} if following else {}
        page = await api.get(path, limit=PAGE, **query, **more)
        items, metadata = page.get("items") or [], page.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not isinstance(items, list) or not isinstance(metadata, dict) or not isinstance(version, str):
            raise ApiError(0, "a list without items and resourceVersion")
        entries += (entry for entry in items if isinstance(entry, dict))
        following = metadata.get("continue") or ""
        if not following or len(entries) >= keeping.MAX_OBJECTS:
            over = max(0, len(entries) - keeping.MAX_OBJECTS) + bool(following)
            if over:
                counts.overflow += over
                log.error("more objects than are kept", path=path, most=keeping.MAX_OBJECTS)
            return entries[: keeping.MAX_OBJECTS], version
