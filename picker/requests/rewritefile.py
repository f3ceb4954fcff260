"""A file of model rewrites, watched: YAML or JSON in, rules out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import yaml

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


@dataclass(frozen=True, slots=True)
class _Mark:
    """What tells one state of a file from the next, without reading it."""

    inode: int
    size: int
    modified: int


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
        self.counts = Counts()
        self.fault = ""
        """What is wrong with the file now; empty: nothing."""
        self._file, self._pool, self._namespace, self._poll = file, pool, namespace, poll_seconds
        self._seen: _Mark | None = None
        self._read: _Mark | None = None
        self._known = file is None

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
            "file": None if self._file is None else str(self._file),
            "rules": len(self.rules.rules),
            "fault": self.fault or None,
        }

    async def _look(self, file: Path) -> None:
        self.counts.looks += 1
        try:
            rewrites = await asyncio.to_thread(self._examine, file)
        except (OSError, ValueError) as error:
            self._failed(error)
            return
        if rewrites is None:
            return
        if self.fault:
            log.info("model rewrites in order again", file=str(file))
        self.fault, self._known = "", True
        rules = Rules.of(rewrites)
        if rules != self.rules:
            self.counts.changes += 1
            self.rules = rules
            log.info("model rewrites read", file=str(file), rules=len(rules.rules))

    def _examine(self, file: Path) -> tuple[Rewrite, ...] | None:
        """In a thread: look, and read where the file is new and at rest. The very first look reads at once."""
        mark, before = _mark(file), self._seen
        self._seen = mark
        if mark == self._read or (before is not None and mark != before):
            return None
        self._read = mark
        if mark.size > MAX_BYTES:
            raise RewriteError(f"it has {mark.size} bytes; at most {MAX_BYTES} are read")
        text = file.read_text("utf-8")
        if _mark(file) != mark:
            self._read = None
            return None
        return read_rewrites(text, pool=self._pool, namespace=self._namespace)

    def _failed(self, error: Exception) -> None:
        self.counts.failures += 1
        if isinstance(error, OSError):
            # It may come back as it was.
            self._read = None
        fault = f"{type(error).__name__}: {error}"[:500]
        if fault != self.fault:
            log.warning(
                "model rewrites unusable, the last known rules stay", file=str(self._file), reason=fault
            )
        self.fault = fault


def _mark(file: Path) -> _Mark:
    stat = file.stat()
    return _Mark(stat.st_ino, stat.st_size, stat.st_mtime_ns)
