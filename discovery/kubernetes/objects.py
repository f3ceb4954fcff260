"""Objects of one kind for the picker to make sense of, with the server that they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from discovery.kubernetes.api import Api
from discovery.kubernetes.keeping import WatchCounts
from discovery.kubernetes.mirror import Mirror, Pace
from discovery.kubernetes.paths import OBJECTIVE, REWRITE, grouped

T = TypeVar("T")

KINDS: Mapping[str, tuple[str, ...]] = {
    "inferenceobjectives": OBJECTIVE,
    "inferencemodelrewrites": REWRITE,
}


class Objects(Generic[T]):
    """
    Watches one kind in one namespace. A kind that the server does not know, or does not let us read, has no objects.

    Args:
        api: The server; closed when `run` ends.
        plural: Name of the kind, one of `KINDS`.
        namespace: Where its objects are.
        read: From JSON to what is kept; raises ValueError for what makes no sense: the last known stands.
        pace: Times of the watch.

    """

    def __init__(
        self,
        api: Api,
        plural: str,
        *,
        namespace: str,
        read: Callable[[Mapping[str, Any]], T | None],
        pace: Pace | None = None,
    ) -> None:
        self._api = api
        self._number = 0
        self._mirror = Mirror(
            api, grouped(namespace, plural, *KINDS[plural]), read=read, changed=self._changed, pace=pace
        )

    @property
    def counts(self) -> WatchCounts:
        """What became of lists and watches."""
        return self._mirror.counts

    @property
    def objects(self) -> Mapping[str, T]:
        """What is known, by ``namespace/name``."""
        return self._mirror.objects

    @property
    def number(self) -> int:
        """Grows with each change."""
        return self._number

    @property
    def settled(self) -> bool:
        """Whether all objects were read once, or it is known that there is nothing to read."""
        return self._mirror.listed or self._mirror.state in {"missing", "refused"}

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return self._mirror.shown()

    async def run(self) -> None:
        """Watch. Never returns."""
        try:
            await self._mirror.run()
        finally:
            await self._api.close()

    def _changed(self) -> None:
        self._number += 1
