"""A file that is looked at now and then, and read where it is new and at rest: it may be half written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Mark:
    """What tells one state of a file from the next, without reading it."""

    inode: int
    size: int
    modified: int


class RestingFile(Generic[T]):
    """
    Looks at one file. A fault is there until the file was read in order, or stands again as it was read.

    Args:
        file: Where it is.
        read: Its text as values; raises ValueError for what makes no sense.
        most: Largest file that is read, in bytes.

    """

    def __init__(self, file: Path, read: Callable[[str], T], *, most: int) -> None:
        self.fault = ""
        """What is wrong with it now; empty: nothing."""
        self._file, self._parse, self._most = file, read, most
        self._seen: _Mark | None = None
        self._read: _Mark | None = None

    def look(self) -> T | None:
        """
        What it says, where that is new and it has rested for one look; the very first look reads at once. Blocks.

        Raises:
            OSError, ValueError: it is gone, too large, or makes no sense. `failed` wants to hear of it.

        """
        mark, before = self._mark(), self._seen
        self._seen = mark
        if mark == self._read or (before is not None and mark != before):
            return None
        self._read = mark
        if mark.size > self._most:
            raise ValueError(f"it has {mark.size} bytes; at most {self._most} are read")
        text = self._file.read_text("utf-8")
        if self._mark() != mark:
            self._read = None
            return None
        return self._parse(text)

    @property
    def known(self) -> bool:
        """Whether what was there at the last look is what was read, and in order."""
        return self._seen is not None and self._seen == self._read and not self.fault

    def failed(self, error: Exception) -> bool:
        """Keep the fault in mind; says whether it is news."""
        if isinstance(error, OSError):
            # it may come back as it was
            self._read = None
        before, self.fault = self.fault, f"{type(error).__name__}: {error}"[:500]
        return self.fault != before

    def mended(self) -> bool:
        """It was read in order; says whether something was wrong before."""
        before, self.fault = self.fault, ""
        return bool(before)

    def _mark(self) -> _Mark:
        stat = self._file.stat()
        return _Mark(stat.st_ino, stat.st_size, stat.st_mtime_ns)
