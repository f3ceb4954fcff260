"""Label affinity: a request that carries a header goes to workers whose label has its value, or pays on others."""

from __future__ import annotations

import math
from dataclasses import dataclass

from picker.core.criteria import MOST_BLOCKS, Setup, Traits, WorkerTraits

MOST_PAIRS = 32


@dataclass(frozen=True, slots=True)
class Pair:
    """One header, and the label that should have its value."""

    header: str
    label: str
    blocks: float | None = None
    """What other workers cost more; None: they are left out."""


class Labels:
    """The criterion, by the pairs of ``PICKER_LABEL_AFFINITY``: ``HEADER=LABEL`` or ``HEADER=LABEL:BLOCKS``.

    A request without the header, or with an empty one, is left alone. Values are compared as they are.
    """

    seam = 1

    def __init__(self, setup: Setup) -> None:
        """Raise ValueError where a pair makes no sense."""
        if not setup.label_affinity:
            raise ValueError(
                "PICKER_LABEL_AFFINITY is empty; name HEADER=LABEL or HEADER=LABEL:BLOCKS pairs in it"
            )
        if len(setup.label_affinity) > MOST_PAIRS:
            raise ValueError(f"PICKER_LABEL_AFFINITY names more than {MOST_PAIRS} pairs")
        self.pairs = tuple(read_pair(text) for text in setup.label_affinity)

    def prepare(self, request: Traits) -> Wanted | None:
        """What the request's headers want, if they say anything."""
        wanted = [
            (pair, value) for pair in self.pairs if (value := request.headers.get(pair.header, "").strip())
        ]
        return Wanted(wanted) if wanted else None


class Wanted:
    """The labels that one request wants: those that are a must, and those whose lack has a price."""

    __slots__ = ("_must", "_rather")

    def __init__(self, wanted: list[tuple[Pair, str]]) -> None:
        self._must = [(pair.label, value) for pair, value in wanted if pair.blocks is None]
        self._rather = [(pair.label, value, pair.blocks) for pair, value in wanted if pair.blocks is not None]

    def bars(self, worker: WorkerTraits) -> str:
        """The first label that the worker must have and has not."""
        for label, value in self._must:
            if worker.labels.get(label) != value:
                return f"{label} is not {value!r:.60}"
        return ""

    def blocks(self, worker: WorkerTraits) -> float:
        """The prices of the labels that the worker lacks."""
        return sum(blocks for label, value, blocks in self._rather if worker.labels.get(label) != value)


def read_pair(text: str) -> Pair:
    """Read ``HEADER=LABEL`` or ``HEADER=LABEL:BLOCKS``.

    Raises:
        ValueError: it is neither.
    """
    header, sign, rest = text.partition("=")
    label, priced, number = rest.partition(":")
    header, label = header.strip().lower(), label.strip()
    if not (sign and header and label):
        raise ValueError(
            f"PICKER_LABEL_AFFINITY: {text[:100]!r} is no pair; write HEADER=LABEL or HEADER=LABEL:BLOCKS"
        )
    if not priced:
        return Pair(header, label)
    try:
        blocks = float(number)
    except ValueError:
        blocks = math.nan
    if not 0 <= blocks <= MOST_BLOCKS:
        raise ValueError(
            f"PICKER_LABEL_AFFINITY: BLOCKS in {text[:100]!r} must be a number from 0 to {MOST_BLOCKS:.0f}"
        )
    return Pair(header, label, blocks)
