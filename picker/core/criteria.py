"""The seam for criteria of an operator's own: what they see, what they may say, and what they promise.

A criterion is asked once per request whether it has anything to say; where it has, it hands back an object that is then
asked once per worker. That object may bar workers (`Filter`), add blocks to their prices (`PriceTerm`), or both.

Criteria are pure: values in, values out. They run on the event loop between reading the view and booking, so they never
wait, do no input or output, and cost microseconds per worker. They get nothing to change and are told of nothing but
requests: a criterion that needs facts from elsewhere keeps them itself and reads them here without waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

SEAM = 1
"""Number of this seam. A criterion names the number it was written for; new fields of the values do not change it."""

MOST_BLOCKS = 1_048_576.0
"""Most blocks that one price term may add or take off; beyond it the term is clamped."""

MOST_REASON = 120
"""Longest reason of a filter, in characters; a longer one is cut."""

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Traits:
    """What a criterion may know of a request. Nothing of the prompt itself."""

    model: str = ""
    """The model as it is asked of the workers; empty where none was named."""
    base_model: str = ""
    """The model whose weights serve it: differs from ``model`` for a LoRA adapter."""
    lora: str = ""
    """The LoRA adapter; empty: none."""
    api: str = "other"
    """``completions``, ``chat``, ... or ``other``."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_LABELS, hash=False)
    """Read only, with lower-case names. Clients write them, unless the gateway takes care of that."""
    prompt_tokens: int = 0
    """Exact where ``tokens_known``, else a guess from the length."""
    tokens_known: bool = False
    objective: str = ""
    """The objective that the request's headers name; empty: none."""
    fairness_id: str = ""
    """Whose request it is, as its headers say; empty: not said."""
    priority: int | None = None
    """Lower is earlier; None: not said."""


@dataclass(frozen=True, slots=True)
class WorkerTraits:
    """What a criterion may know of a worker. What is booked there is in the price already."""

    name: str
    """``host:port``, or ``host:port@rank`` above rank 0."""
    address: str = ""
    """``host:port``."""
    rank: int = 0
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS, hash=False)
    """Read only: the pod's labels, or those of the workers file."""
    running: int | None = None
    """Requests that the engine works on, by its last report; None without a fresh one."""
    waiting: int | None = None
    """Requests queued in the engine."""
    kv_usage: float | None = None
    """Part of the KV cache in use, 0..1; None where the engine does not say."""
    loras: frozenset[str] = frozenset()
    """LoRA adapters that the worker is known to hold."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a criterion is told when it is made, once, at the start."""

    pool: str = "default/default"
    """``namespace/name``."""
    block_size: int = 16
    """Tokens per block: prices are in blocks."""
    label_affinity: tuple[str, ...] = ()
    """``PICKER_LABEL_AFFINITY``."""


class Filter(Protocol):
    """One request's view of which workers may not take it."""

    def bars(self, worker: WorkerTraits) -> str:
        """Why the worker may not take the request, in a few words, for operators; empty: it may.

        A filter is hard: where filters leave nobody, the request is refused with 503.
        """
        ...


class PriceTerm(Protocol):
    """One request's view of what workers cost beyond their price."""

    def blocks(self, worker: WorkerTraits) -> float:
        """What to add to the worker's price, in blocks of work; below 0 it is a discount.

        Finite, at most `MOST_BLOCKS` either way. One block is what computing ``block_size`` prompt tokens costs.
        """
        ...


class Criterion(Protocol):
    """One criterion, made once at the start from what its entry point names: a callable that takes a `Setup`.

    What the callable raises stops the start, with its text. What a criterion raises later costs only its say on that
    request: the request is served without it, counted and logged.
    """

    @property
    def seam(self) -> int:
        """The number of the seam that it was written for, written out as a number."""
        ...

    def prepare(self, request: Traits) -> Filter | PriceTerm | None:
        """Look at the request once. None: nothing to say on it, and no worker is looked at."""
        ...
