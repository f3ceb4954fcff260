"""
What a client says about the standing of its request: objective, fairness id, priority, wanted latencies.

Read and shown in ``/why``, for later use: no decision depends on it. Of each pair of names the newer one counts. What
is too long or makes no sense is left out, and named. Trace headers are nobody's business here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from picker.requests.ask import Standing

MAX_LENGTH = 256
MAX_MILLISECONDS = 86_400_000.0

OBJECTIVE = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
FAIRNESS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
TTFT = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
TPOT = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")
_NAMES = frozenset((*OBJECTIVE, *FAIRNESS, *TTFT, *TPOT))


def read_standing(headers: Mapping[str, str], priority: int | None = None) -> Standing | None:
    """
    Read it; None where nothing is said. Never raises.

    Args:
        headers: Lower-case names.
        priority: The body's own.

    """
    if priority is None and _NAMES.isdisjoint(headers):
        return None
    ignored: list[str] = []
    return Standing(
        objective=_word(headers, OBJECTIVE, ignored),
        fairness_id=_word(headers, FAIRNESS, ignored),
        priority=priority,
        ttft_ms=_milliseconds(headers, TTFT, ignored),
        tpot_ms=_milliseconds(headers, TPOT, ignored),
        ignored=tuple(ignored),
    )


def _first(headers: Mapping[str, str], names: tuple[str, str]) -> tuple[str, str]:
    return next(((name, headers[name]) for name in names if headers.get(name)), ("", ""))


def _word(headers: Mapping[str, str], names: tuple[str, str], ignored: list[str]) -> str:
    name, value = _first(headers, names)
    value = value.strip()
    if len(value) <= MAX_LENGTH and value.isprintable() and value.isascii():
        return value
    ignored.append(name)
    return ""


def _milliseconds(headers: Mapping[str, str], names: tuple[str, str], ignored: list[str]) -> float | None:
    name, value = _first(headers, names)
    if not name:
        return None
    try:
        number = float(value) if len(value) <= 32 and value.isascii() else math.nan
    except ValueError:
        number = math.nan
    if 0 < number <= MAX_MILLISECONDS:
        return number
    ignored.append(name)
    return None
