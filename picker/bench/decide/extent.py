"""How much the bench of decisions measures: which replicas, which bodies, for how long. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from picker.bench.decide.events import Storm
from picker.bench.decide.script import Mode
from picker.bench.decide.stand import PLANES, TRANSPORTS, Kind

Part = Literal["rows", "events", "held", "filter", "profile"]
PARTS: tuple[Part, ...] = ("rows", "events", "held", "filter", "profile")
KB = 1_024
SMALL, MIDDLE, LARGE = KB, 32 * KB, 300 * KB
SIZES = (SMALL, MIDDLE, LARGE)
WORKERS = (8, 64, 1_000)
FEW, USUAL, MANY = WORKERS


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of replica, and the bodies that it is asked with."""

    kind: Kind
    sizes: Sequence[int] = (SMALL, MIDDLE)
    fresh: bool = False
    """Whether prompts are new each time, so that their tokens are not cached."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    cells: Sequence[Cell]
    parts: Sequence[Part] = PARTS
    streams: int = 16
    mode: Mode = "full_duplex_streamed"
    seconds: float = 2.0
    """Of each round."""
    rates: Mapping[int, float] = field(default_factory=lambda: {SMALL: 500.0, MIDDLE: 200.0, LARGE: 20.0})
    """New streams each second in the open loop, by the body's size."""
    sweep: Sequence[float] = (100.0, 1_000.0, 2_000.0)
    """Further rates of the plainest replica at 1 KB."""
    storm: Storm = field(default_factory=Storm)
    turns: int = 3
    """Rounds on each side where another server is measured beside ours."""
    held: int = 10_000
    held_seconds: float = 4.0
    """How long held streams are watched doing nothing."""
    filter_rounds: int = 3
    profile_seconds: float = 4.0
    whole: str = "usual"

    def rate(self, size: int) -> float:
        """Of the open loop for a size, that of the next smaller one where none is given."""
        known = [each for each in sorted(self.rates) if each <= size]
        return self.rates[known[-1]] if known else max(self.rates.values())


def prompts_of(size: int) -> int:
    """How many different bodies of a size are sent, again and again."""
    return 32 if size < 8 * KB else 12 if size < 100 * KB else 4


USUAL_CELLS = (
    Cell(Kind(), SIZES),
    Cell(Kind(transport="grpcio")),
    Cell(Kind(plane="eventual")),
    Cell(Kind(plane="atomic")),
    Cell(Kind(workers=FEW)),
    Cell(Kind(workers=MANY)),
    Cell(Kind(index_blocks=100_000), (SMALL,)),
    Cell(Kind(index_blocks=1_000_000), (SMALL,)),
    Cell(Kind(plane="eventual", replicas=2), (SMALL,)),
    Cell(Kind(plane="eventual", replicas=4), (SMALL,)),
    Cell(Kind(), (SMALL, MIDDLE), fresh=True),
)


def full_cells() -> list[Cell]:
    """Every transport with every plane and number of workers, and the usual ones that are not among them."""
    every = [
        Cell(Kind(transport=transport, plane=plane, workers=workers), SIZES)
        for transport, plane, workers in product(TRANSPORTS, PLANES, WORKERS)
    ]
    kinds = [cell.kind for cell in every]
    return [*every, *(cell for cell in USUAL_CELLS if cell.fresh or cell.kind not in kinds)]


QUICK = Extent(
    cells=(Cell(Kind(workers=4), (SMALL,)),),
    seconds=0.4,
    sweep=(),
    storm=Storm(rate=50, events=500, pairs=1, seconds=0.6),
    turns=1,
    held=200,
    held_seconds=0.5,
    filter_rounds=1,
    profile_seconds=0.8,
    whole="quick",
)
