"""Model rewrites of the Kubernetes API, joined with those of the file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from discovery.source import ObjectSource
from picker.requests.rewritefile import Counts, WatchedRules
from picker.requests.rewriting import MAX_RULES, Rewrite, Rules, read_rewrite

log = structlog.get_logger(__name__)


def read_object(entry: Mapping[str, Any]) -> Rewrite:
    """
    One ``InferenceModelRewrite`` as the API server tells it: in lists an object does not say its own kind.

    Raises:
        RewriteError: something in it is wrong.

    """
    return read_rewrite({"kind": "InferenceModelRewrite", **entry}, "object")


class JoinedRules:
    """
    The rules of a file and of API objects, as one; which object is older decides, wherever it stands.

    Args:
        file: The file; it may be none.
        objects: The objects.
        pool: Name of the pool: objects that name another one are left out.

    """

    def __init__(self, file: WatchedRules, objects: ObjectSource[Rewrite], *, pool: str) -> None:
        self.objects = objects
        self._file, self._pool = file, pool
        self._made_of: tuple[object, int] = (None, -1)
        self._rules = Rules()
        self._digest = self._rules.digest()
        self._fault = ""

    @property
    def rules(self) -> Rules:
        """All rules, in the order in which they count."""
        made_of = (self._file.rewrites, self.objects.number)
        if self._made_of[0] is not made_of[0] or self._made_of[1] != made_of[1]:
            self._join()
            self._made_of = made_of
        return self._rules

    @property
    def digest(self) -> str:
        """Of the rules in force, to compare replicas by; empty: not all of them were read yet."""
        rules = self.rules
        del rules
        return self._digest if self.known else ""

    @property
    def counts(self) -> Counts:
        """Of the looks at the file."""
        return self._file.counts

    @property
    def fault(self) -> str:
        """What is wrong now; empty: nothing."""
        return self._file.fault or self._fault

    @property
    def known(self) -> bool:
        """Whether file and objects were read once, or are known not to be there."""
        return self._file.known and self.objects.settled

    async def run(self) -> None:
        """Look at both. Never returns."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._file.run())
            both.create_task(self.objects.run())

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {
            **self._file.status(),
            "rules": len(self.rules.rules),
            "fault": self.fault or None,
            "objects": self.objects.status(),
        }

    def _join(self) -> None:
        found = [each for each in self.objects.objects.values() if each.pool in {"", self._pool}]
        joined = [*self._file.rewrites, *sorted(found, key=lambda each: each.name)]
        kept: list[Rewrite] = []
        room = MAX_RULES
        for rewrite in joined:
            if len(rewrite.rules) <= room:
                room -= len(rewrite.rules)
                kept.append(rewrite)
        self._fault = "" if len(kept) == len(joined) else f"more than {MAX_RULES} rules"
        if self._fault:
            log.error("model rewrites are left out", reason=self._fault, objects=len(joined) - len(kept))
        self._rules = Rules.of(kept)
        self._digest = self._rules.digest()
        log.info("model rewrites joined", rules=len(self._rules.rules))
