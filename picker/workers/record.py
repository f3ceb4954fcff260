"""One worker, and what its scrapes and its lists brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from picker.core.load import Report
from picker.workers.adapters import Models

GONE_AFTER = 2
"""So many scrapes in a row that found nobody listening, and the worker gets no more requests."""


@dataclass(slots=True)
class Record:
    """One worker, and what its scrapes brought. For reading; only the registry writes."""

    name: str
    address: str
    rank: int
    labels: Mapping[str, str] = field(default_factory=dict)
    report: Report | None = None
    """The last good one, however old."""
    ok: bool | None = None
    """Whether the last scrape succeeded; None before the first."""
    failures: int = 0
    """Scrapes that failed since the last good one."""
    error: str = ""
    """Why the last scrape failed; empty if it did not."""
    unconnected: int = 0
    """Scrapes in a row to which nobody even listened."""
    labelled: frozenset[str] | None = None
    """The LoRA adapters that its labels name; None where they do not speak of adapters."""
    models: Models | None = None
    """Its list of models; None where it has not told one."""

    @property
    def here(self) -> bool:
        """Whether anybody listens at its address, as far as is known."""
        return self.unconnected < GONE_AFTER

    @property
    def asleep(self) -> bool:
        """Whether the engine said, when last heard, that it sleeps. Silence does not wake it."""
        return self.report is not None and not self.report.routable

    def failed(self, error: str) -> None:
        """A scrape failed, for that reason."""
        self.ok = False
        self.failures += 1
        self.error = error
