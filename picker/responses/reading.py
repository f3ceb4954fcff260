"""One response, read and named as its pieces pass by."""

from __future__ import annotations

from collections.abc import Callable

from picker.responses.counts import Counts, Unreadable
from picker.responses.naming import Naming
from picker.responses.shape import Responded, Shape, shape_of
from picker.responses.usage import Usage, UsageReading

Told = Callable[[Usage, str], None]
"""Called once per response that told its usage, with who served it (empty: unknown)."""


class Reading:
    """
    Reads one response. Has the shape of `picker.serving.seam.ResponseReading`: nothing raises, little is kept.

    Args:
        counts: Where what became of it is counted.
        told: Called at the end with the usage, if any was told; None: usage is not read.
        name: The client's model name, to be put back; empty: the answer stays as it is.

    """

    __slots__ = ("_counts", "_ended", "_name", "_naming", "_served", "_told", "_usage", "rewrites")

    def __init__(self, counts: Counts, *, told: Told | None = None, name: str = "") -> None:
        self._counts, self._told, self._name = counts, told, name
        self._usage: UsageReading | None = None
        self._naming: Naming | None = None
        self._served = ""
        self._ended = False
        self.rewrites = bool(name)

    def begin(self, response: Responded) -> None:
        """Response headers were seen: what can be read is known. What is no success tells no usage."""
        self._served, shape = response.served, shape_of(response)
        success = 200 <= response.status < 300
        if isinstance(shape, Shape):
            if success and self._told is not None:
                self._usage = UsageReading(shape)
            if self._name:
                self._naming = Naming(shape, self._name)
            return
        self.rewrites = False
        if success and self._told is not None:
            self._counts.usage_unreadable[shape] += 1
        if success and self._name:
            self._counts.rename_unreadable[shape] += 1

    def piece(self, data: bytes, *, end: bool) -> bytes | None:
        """What goes on instead of ``data``; None: ``data`` itself."""
        if self._ended:
            return None
        if self._usage is not None and (data or end):
            self._usage.piece(data, end=end)
        changed = None if self._naming is None or not data else self._naming.piece(data)
        if end:
            self._finish()
        return changed

    def over(self) -> None:
        """Nothing more comes. Repeatable; without effect where the end was seen: where not, what was told counts."""
        if self._ended:
            return
        if self._usage is not None and self._usage.usage is None:
            self._usage.fault = Unreadable.CUT
        self._finish()

    def _finish(self) -> None:
        """Count what became of it: once, whatever comes after."""
        self._ended = True
        if self._naming is not None:
            self._counts.renamed += self._naming.named
            if self._naming.exhausted:
                self._counts.rename_unreadable[Unreadable.INTRICATE] += 1
            else:
                self._counts.unnamed += not self._naming.named
        if self._usage is None or self._told is None:
            return
        usage = self._usage.usage
        if usage is not None:
            self._counts.usage_told += 1
            self._counts.input_tokens += usage.input
            self._counts.output_tokens += usage.output
            self._told(usage, self._served)
        elif self._usage.fault is not None:
            self._counts.usage_unreadable[self._usage.fault] += 1
        else:
            self._counts.usage_absent += 1
        self._usage = self._naming = None
