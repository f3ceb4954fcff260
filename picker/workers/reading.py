"""What an engine's ``/metrics`` page says: Prometheus text to one report per data-parallel rank.

vLLM's names, old and new; where a page carries both, the new one counts and the old one is left alone. A page may be
large (histograms by the hundred) and is not trusted: only the lines that carry a wanted name are parsed, their number
and length are bounded, a value that makes no sense is left out and counted, and a page that says nothing is a value
(`Unreadable`), never an exception.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from picker.core.load import Report

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
WAITING_BY_REASON = "vllm:num_requests_waiting_by_reason"
USAGES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""Newest name first."""
QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
SLEEP = "vllm:engine_sleep_state"
CACHE = "vllm:cache_config_info"
LORA = "vllm:lora_requests_info"

MAX_LINES = 4096
MAX_LINE_BYTES = 65_536
MAX_RANK = 4095
MAX_LORAS = 1024
MAX_COUNT = 1_000_000_000

T = TypeVar("T")
Rank = int | None
"""The rank a line names; None where it names none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one page said."""

    reports: Mapping[int, Report]
    """By data-parallel rank; at least one."""
    faults: int = 0
    """Wanted lines or values that could not be used."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The page is not an engine's."""

    reason: str


@dataclass(slots=True)
class _Page:
    """The wanted values of a page, by name and rank."""

    values: dict[str, dict[Rank, float]] = field(default_factory=dict)
    reasons: dict[str, dict[Rank, float]] = field(default_factory=dict)
    asleep: dict[Rank, bool] = field(default_factory=dict)
    cache: dict[Rank, Mapping[str, str]] = field(default_factory=dict)
    lora: tuple[float, Mapping[str, str]] | None = None
    faults: int = 0

    def value(self, names: Iterable[str], rank: int) -> float | None:
        """The first of these names that the page has for the rank, or for no rank in particular."""
        for name in names:
            found = _of(self.values.get(name, {}), rank)
            if found is not None:
                return found
        return None


def read(page: bytes, *, begun: float, ended: float, usage_metric: str = "") -> Reading | Unreadable:
    """Read a page that was asked for at ``begun`` and had arrived at ``ended`` (monotonic seconds).

    ``usage_metric`` names the KV-cache usage (a fraction 0..1) where it is not one of vLLM's own names.
    """
    usages = (usage_metric,) if usage_metric else USAGES
    wanted = {RUNNING, WAITING, WAITING_BY_REASON, *usages, *QUERIES, *HITS, SLEEP, CACHE, LORA}
    values = {RUNNING, WAITING, *usages, *QUERIES, *HITS}
    lines, faults = _wanted_lines(page, wanted)
    found = _Page(faults=faults)
    for sample in _samples(lines, found):
        if sample.name in values:
            _take_value(found, sample, usages)
        elif sample.name in wanted:
            _take_other(found, sample)
    ranks = {0 if rank is None else rank for rank in found.values.get(RUNNING, {})}
    if not ranks:
        return Unreadable(f"{RUNNING} is not among its {len(page)} bytes: is this an engine's metrics page?")
    reports = {rank: _report(found, rank, begun, ended, usages) for rank in sorted(ranks)}
    return Reading(reports, found.faults)


def _wanted_lines(page: bytes, wanted: Iterable[str]) -> tuple[list[str], int]:
    """The lines that begin with a wanted name, found without looking at the others, and how many were left out."""
    text = b"\n" + page
    lines: list[str] = []
    faults = 0
    for name in sorted(wanted):
        start = b"\n" + name.encode()
        at = text.find(start)
        while at >= 0:
            after = at + len(start)
            end = text.find(b"\n", after)
            end = len(text) if end < 0 else end
            if text[after : after + 1] in (b"{", b" ", b"\t"):
                if end - at > MAX_LINE_BYTES or len(lines) >= MAX_LINES:
                    faults += 1
                else:
                    lines.append(text[at + 1 : end].decode("utf-8", "replace").rstrip("\r"))
            at = text.find(start, end)
    return lines, faults


def _samples(lines: list[str], found: _Page) -> Iterator[Sample]:
    """The samples of these lines; if one of them is broken the others still count."""
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except (ValueError, LookupError):
        families = []
        for line in lines:
            try:
                families.extend(text_string_to_metric_families(line + "\n"))
            except (ValueError, LookupError):
                found.faults += 1
    for family in families:
        yield from family.samples


def _take_value(found: _Page, sample: Sample, usages: tuple[str, ...]) -> None:
    value = _fraction(sample.value) if sample.name in usages else _amount(sample.value)
    rank = _rank(sample.labels)
    if value is None or rank == -1:
        found.faults += 1
        return
    by_rank = found.values.setdefault(sample.name, {})
    # rows of one rank that differ in other labels are views of the same queue: the largest, never the sum
    by_rank[rank] = max(value, by_rank.get(rank, 0.0))


def _take_other(found: _Page, sample: Sample) -> None:
    rank, labels, value = _rank(sample.labels), sample.labels, sample.value
    if rank == -1 or not math.isfinite(value):
        found.faults += 1
    elif sample.name == WAITING_BY_REASON:
        amount = _amount(value)
        if amount is None:
            found.faults += 1
        else:
            found.reasons.setdefault(labels.get("reason", ""), {})[rank] = amount
    elif sample.name == SLEEP:
        state = labels.get("sleep_state", "")
        found.asleep[rank] = found.asleep.get(rank, False) or (value == 0 if state == "awake" else value > 0)
    elif sample.name == CACHE:
        found.cache[rank] = labels
    elif found.lora is None or value >= found.lora[0]:
        found.lora = (value, labels)  # stale series stay on the page: the youngest counts


def _report(found: _Page, rank: int, begun: float, ended: float, usages: tuple[str, ...]) -> Report:
    reasons = {name: _of(by_rank, rank) for name, by_rank in found.reasons.items()}
    by_reason = sum(value for value in reasons.values() if value is not None)
    waiting = found.value((WAITING,), rank)
    cache = _of(found.cache, rank) or {}
    loras, max_loras = _loras(found.lora)
    return Report(
        begun=begun,
        ended=ended,
        running=int(found.value((RUNNING,), rank) or 0),
        waiting=int(by_reason if waiting is None else waiting),
        kv_usage=found.value(usages, rank),
        total_blocks=_whole(cache.get("num_gpu_blocks")),
        block_size=_whole(cache.get("block_size")),
        total_tokens=_whole(cache.get("kv_cache_size_tokens")),
        waiting_capacity=_int(reasons.get("capacity")),
        waiting_deferred=_int(reasons.get("deferred")),
        asleep=bool(_of(found.asleep, rank)),
        prefix_queries=found.value(QUERIES, rank),
        prefix_hits=found.value(HITS, rank),
        loras=loras,
        max_loras=max_loras,
    )


def _loras(row: tuple[float, Mapping[str, str]] | None) -> tuple[frozenset[str] | None, int | None]:
    if row is None:
        return None, None
    labels = row[1]
    listed = f"{labels.get('running_lora_adapters', '')},{labels.get('waiting_lora_adapters', '')}"
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return frozenset(names[:MAX_LORAS]), _whole(labels.get("max_lora"))


def _of(by_rank: Mapping[Rank, T], rank: int) -> T | None:
    found = by_rank.get(rank)
    return by_rank.get(None) if found is None else found


def _rank(labels: Mapping[str, str]) -> Rank:
    """The rank that the labels name, None for none, -1 for one that makes no sense."""
    text = labels.get("engine", labels.get("dp_rank", ""))
    if not text:
        return None
    return int(text) if text.isascii() and text.isdigit() and int(text[:6]) <= MAX_RANK else -1


def _amount(value: float) -> float | None:
    return min(value, MAX_COUNT) if math.isfinite(value) and value >= 0 else None


def _fraction(value: float) -> float | None:
    """A share of 0..1; a little above is rounding, far above another unit."""
    return min(value, 1.0) if math.isfinite(value) and 0 <= value <= 1.01 else None


def _whole(text: str | None) -> int | None:
    """A label's whole number above 0; engines write ``None`` for what they do not know."""
    if text is None or len(text) > 15 or not (text.isascii() and text.isdigit()):
        return None
    return int(text) or None


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)
