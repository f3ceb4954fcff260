"""The requests of a run: drawn from its seed alone, so that every mode and number of replicas gets the same ones."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from picker.core.cost import Demand, Weights
from stateplane.booking import Amount

BLOCK = 16
LEAST_TOKENS, MOST_TOKENS = 256, 4096
SPREAD = 0.8
"""Of the lognormal time that a request takes: a tenth takes 2.5 times the mean or more."""
IN_FLIGHT = 8
"""Requests under way on a worker, in the mean."""
WEIGHTS = Weights()
"""The product's defaults."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One kind of run."""

    mode: str
    replicas: int
    rate: float
    """Requests per second of the whole pool."""
    workers: int


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    number: int
    at: float
    """Seconds after the start."""
    tokens: int
    """Of its prompt, whole blocks, none of them cached anywhere."""
    seconds: float
    """How long it is under way."""
    share: float
    """0..1: which replica the gateway hands it to, as a share of them."""

    @property
    def amount(self) -> Amount:
        """What it occupies."""
        return Amount(self.tokens, self.tokens // BLOCK)

    @property
    def demand(self) -> Demand:
        """What is asked of the core."""
        return Demand(self.tokens, self.tokens // BLOCK, BLOCK)

    def replica(self, replicas: int) -> int:
        """Whose it is."""
        return int(self.share * replicas)


def requests(rate: float, workers: int, count: int, seed: int) -> list[Request]:
    """So many of them, arriving at random (Poisson), each handed to a random replica."""
    rng = random.Random(f"race/{seed}")
    mean = IN_FLIGHT * workers / rate
    mu = math.log(mean) - SPREAD**2 / 2
    found, at = [], 0.0
    for number in range(count):
        at += rng.expovariate(rate)
        tokens = BLOCK * rng.randint(LEAST_TOKENS // BLOCK, MOST_TOKENS // BLOCK)
        found.append(Request(number, at, tokens, rng.lognormvariate(mu, SPREAD), rng.random()))
    return found


def names(workers: int) -> list[str]:
    """So many workers."""
    return [f"10.0.{n // 250}.{n % 250 + 1}:8000" for n in range(workers)]


def warm_up(rate: float, workers: int) -> float:
    """Seconds until the pool is as full as it gets: three mean times of a request."""
    return 3 * IN_FLIGHT * workers / rate
