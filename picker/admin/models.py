"""What is told by model: tokens by the engines' words, and rewrites. The set of labels is bounded."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

MAX_PAIRS = 100
"""Most pairs of names, of each kind, that get series of their own; the rest are told under ``other``."""
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


class _Pairs:
    """The pairs of names that are labels, the first ones seen."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def bounded(self, first: str, second: str) -> tuple[str, str]:
        """The pair, or `OTHER` twice."""
        pair = (first, second)
        if pair in self._known:
            return pair
        if len(self._known) >= MAX_PAIRS or max(len(first), len(second)) > MAX_NAME:
            return OTHER, OTHER
        self._known.add(pair)
        return pair


class ModelMetrics:
    """Under the field's labels: the client's name of the model, and the one that the engine saw."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._models, self._rules = _Pairs(), _Pairs()
        self._given = _histogram("input", "Prompt tokens, cached ones included.", registry)
        self._made = _histogram("output", "Tokens generated.", registry)
        self._cached = _histogram("cached", "Prompt tokens found in the cache, where told.", registry)
        self._rewrites = Counter(
            "picker_model_rewrite_decisions",
            "Requests that went on under another model, by the rule that said so.",
            ["rule", "target_model_name"],
            registry=registry,
        )

    def used(self, model: str, target: str, *, given: int, made: int, cached: int | None) -> None:
        """The tokens of one request."""
        labels = self._models.bounded(model, target)
        self._given.labels(*labels).observe(given)
        self._made.labels(*labels).observe(made)
        if cached is not None:
            self._cached.labels(*labels).observe(cached)

    def rewrote(self, rule: str, target: str) -> None:
        """One request went on under another model; both are an operator's words."""
        self._rewrites.labels(*self._rules.bounded(rule, target)).inc()


def _histogram(name: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(
        f"picker_request_{name}_tokens",
        f"{text} By the engines' word.",
        ("model_name", "target_model_name"),
        buckets=BUCKETS,
        registry=registry,
    )
