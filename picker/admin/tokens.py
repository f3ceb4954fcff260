"""Tokens per request as the engines tell them, by model; the set of labels is bounded."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

MAX_MODELS = 100
"""Most pairs of names that get series of their own; the rest are told under ``other``."""
MAX_NAME = 200
"""Longest name that is a label."""

OTHER = "other"

BUCKETS = (
    1,
    8,
    16,
    32,
    64,
    128,
    256,
    512,
    1024,
    2048,
    4096,
    8192,
    16384,
    32768,
    65536,
    131072,
    262144,
    1048576,
)

_LABELS = ("model_name", "target_model_name")


class TokenMetrics:
    """Three histograms, under the field's labels: the client's name of the model, and the one that the engine saw."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._known: set[tuple[str, str]] = set()
        self._given = self._histogram("input", "Prompt tokens, cached ones included.", registry)
        self._made = self._histogram("output", "Tokens generated.", registry)
        self._cached = self._histogram("cached", "Prompt tokens found in the cache, where told.", registry)

    def _histogram(self, name: str, text: str, registry: CollectorRegistry) -> Histogram:
        full = f"picker_request_{name}_tokens"
        return Histogram(full, f"{text} By the engines' word.", _LABELS, buckets=BUCKETS, registry=registry)

    def used(self, model: str, target: str, *, given: int, made: int, cached: int | None) -> None:
        """The tokens of one request."""
        labels = self._bounded(model, target)
        self._given.labels(*labels).observe(given)
        self._made.labels(*labels).observe(made)
        if cached is not None:
            self._cached.labels(*labels).observe(cached)

    def _bounded(self, model: str, target: str) -> tuple[str, str]:
        labels = (model, target)
        if labels in self._known:
            return labels
        if len(self._known) >= MAX_MODELS or max(len(model), len(target)) > MAX_NAME:
            return OTHER, OTHER
        self._known.add(labels)
        return labels
