"""The price of putting a request on a worker, in blocks of work.

::

    price  = prefill_scale * max(active prefill tokens + prompt - cached, 0) / block
             + decode blocks + request_weight * active requests
    cached = overlap_credit * (device + host_tier_weight * host + disk_tier_weight * disk) * block

*Active* is booked + unbooked; *decode blocks* are the active blocks and those of the request itself. The parameters and
their defaults are those of Dynamo's router, so that what operators know of it carries over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from picker.core.load import NO_LOAD, Load
from picker.core.match import Overlap


@dataclass(frozen=True, slots=True)
class Weights:
    """What counts how much. All are finite and not negative.

    Raises:
        ValueError: one is negative, infinite or not a number.
    """

    prefill_scale: float = 1.0
    overlap_credit: float = 1.0
    host_tier: float = 0.75
    disk_tier: float = 0.25
    request_weight: float = 0.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} is {value}: weights are finite numbers from 0 up")


class Demand(NamedTuple):
    """What a request asks for."""

    prompt_tokens: int
    blocks: int
    """KV blocks that it will occupy, of the pool's block size."""
    block_size: int
    """Tokens per block; at least 1."""


def cached_tokens(overlap: Overlap, block_size: int, weights: Weights) -> float:
    """The prompt tokens that a worker is credited with holding already."""
    device, host, disk = overlap
    credit = weights.overlap_credit * (device + weights.host_tier * host + weights.disk_tier * disk)
    return credit * block_size


def uncached_tokens(demand: Demand, overlap: Overlap, weights: Weights) -> float:
    """The prompt tokens that a worker would still have to compute: what a booking there carries as prefill."""
    return max(demand.prompt_tokens - cached_tokens(overlap, demand.block_size, weights), 0.0)


class Terms(NamedTuple):
    """The three parts of a price, in blocks."""

    prefill: float
    decode: float
    requests: float

    @property
    def price(self) -> float:
        """Their sum."""
        return self.prefill + self.decode + self.requests


def terms(demand: Demand, booked: Load, unbooked: Load, overlap: Overlap, weights: Weights) -> Terms:
    """The parts of the price of one worker."""
    cached = cached_tokens(overlap, demand.block_size, weights)
    prefill = booked.prefill_tokens + unbooked.prefill_tokens + demand.prompt_tokens - cached
    return Terms(
        weights.prefill_scale * max(prefill, 0.0) / demand.block_size,
        booked.blocks + unbooked.blocks + demand.blocks,
        weights.request_weight * (booked.requests + unbooked.requests),
    )


def price(demand: Demand, booked: Load, unbooked: Load, overlap: Overlap, weights: Weights) -> float:
    """What the worker costs the request; the lowest wins."""
    return terms(demand, booked, unbooked, overlap, weights).price


class Slopes(NamedTuple):
    """What one more token, block and request booked on a worker adds to its price."""

    per_token: float
    per_block: float
    per_request: float


def slopes(block_size: int, weights: Weights) -> Slopes:
    """The slopes of every worker's price in what is booked there."""
    return Slopes(weights.prefill_scale / block_size, 1.0, weights.request_weight)


def base_price(demand: Demand, unbooked: Load, overlap: Overlap, weights: Weights) -> float:
    """The part of a worker's price that does not depend on what is booked there.

    ``price == base_price + slopes * booked`` while the worker is credited with no more tokens than the prompt and its
    unbooked prefill have, which holds as long as ``overlap_credit`` and the tiers' weights are at most 1. Beyond that
    the credit ends there: the surplus is no credit for other prompts.
    """
    return price(demand, NO_LOAD, unbooked, overlap, weights)
