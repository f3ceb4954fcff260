"""A file of model rewrites, watched: YAML or JSON in, rules out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import yaml

from discovery.restingfile import RestingFile
from picker.requests.rewriting import MAX_RULES, Rewrite, RewriteError, Rules, read_rewrite

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.5
MAX_BYTES = 4 * 1024 * 1024
"""Largest file that is read."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_rewrites(text: str, *, pool: str, namespace: str) -> tuple[Rewrite, ...]:
    """
    The rewrites of a pool: objects in YAML or JSON, one a document, in arrays, or in the ``items`` of a list.

    Objects that name another pool or namespace are left out; such as name none are for every pool.

    Raises:
        RewriteError: something in it is wrong; nothing of it is used.

    """
    found = tuple(read_rewrite(entry, place) for place, entry in _entries(text))
    if sum(len(rewrite.rules) for rewrite in found) > MAX_RULES:
        raise RewriteError(f"more than {MAX_RULES} rules")
    return tuple(
        rewrite for rewrite in found if rewrite.pool in {"", pool} and rewrite.namespace in {"", namespace}
    )


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RewriteError(f"neither YAML nor JSON: {' '.join(str(error).split())[:300]}") from None
    if not documents:
        # A file being written looks like that.
        raise RewriteError("it holds no object; for no rules write an empty list: []")
    for number, document in enumerate(documents, 1):
        place = f"document {number}"
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            document = document["items"]
        if not isinstance(document, list):
            yield place, document
            continue
        for index, entry in enumerate(document):
            yield f"{place}[{index}]", entry


@dataclass(slots=True)
class Counts:
    """What became of the looks at the file."""

    looks: int = 0
    failures: int = 0
    """Looks at a file that is broken or gone: the last known rules stayed."""
    changes: int = 0


class WatchedRules:
    """
    Looks at the file twice a second; what it says counts once it has rested for one look, for it may be half written.

    A file that is broken or gone changes nothing: the last known rules stay, the fault is counted and said once.

    Args:
        file: As `read_rewrites` reads it; None: there are no rules.
        pool: Name of the pool.
        namespace: Its namespace.
        poll_seconds: Between two looks.

    """

    def __init__(
        self, file: Path | None, *, pool: str, namespace: str, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.rules = Rules()
        self.rewrites: tuple[Rewrite, ...] = ()
        """What the file holds for the pool, as it was last in order."""
        self.counts = Counts()
        self.digest = self.rules.digest() if file is None else ""
        """Of the rules in force, to compare replicas by; empty: the file was never in order."""
        self._path, self._poll = file, poll_seconds
        self._file = None if file is None else RestingFile(
            file, partial(read_rewrites, pool=pool, namespace=namespace), most=MAX_BYTES
        )  # fmt: skip
        self._known = file is None

    @property
    def fault(self) -> str:
        """What is wrong with the file now; empty: nothing."""
        return "" if self._file is None else self._file.fault

    @property
    def known(self) -> bool:
        """Whether the file was in order once, or there is none."""
        return self._known

    async def run(self) -> None:
        """Look at the file. Never returns."""
        while self._file is not None:
            await self._look(self._file)
            await asyncio.sleep(self._poll)
        await asyncio.Event().wait()

    def status(self) -> Mapping[str, Any]:
        """For ``/status.json``."""
        return {
            "file": None if self._path is None else str(self._path),
            "rules": len(self.rules.rules),
            "fault": self.fault or None,
        }

    async def _look(self, file: RestingFile[tuple[Rewrite, ...]]) -> None:
        self.counts.looks += 1
        try:
            rewrites = await asyncio.to_thread(file.look)
        except (OSError, ValueError) as error:
            self.counts.failures += 1
            if file.failed(error):
                log.warning(
                    "model rewrites unusable, the last known rules stay",
                    file=str(self._path),
                    reason=file.fault,
                )
            return
        if rewrites is None:
            return
        if file.mended():
            log.info("model rewrites in order again", file=str(self._path))
        self._known = True
        self.rewrites = rewrites
        rules = Rules.of(rewrites)
        self.digest = rules.digest()
        if rules != self.rules:
            self.counts.changes += 1
            self.rules = rules
            log.info("model rewrites read", file=str(self._path), rules=len(rules.rules))
