"""What an engine's metrics page says: Prometheus text to one report per data-parallel rank.

vLLM, SGLang or TensorRT-LLM: the names on the page tell which. Names are old and new; where a page carries both, the
new one counts and the old one is left alone. A page may be large (histograms by the hundred) and is not trusted: only
the lines that carry a wanted name are parsed, their number and length are bounded, a value that makes no sense is left
out and counted, and a page that says nothing is a value (`Unreadable`), never an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from picker.core.load import Report
from picker.workers.engines import ENGINES, Engine, Names

MAX_LINES = 4096
MAX_LINE_BYTES = 65_536
MAX_RANK = 4095
MAX_LORAS = 1024
MAX_COUNT = 1_000_000_000
KNOWN_HEADS, KNOWN_HEAD = 8_192, 1_024
"""So many names with their labels, none longer, are remembered as they were parsed: from page to page only the values
change."""
REMEMBERED = 16_384
"""Most bytes of an address' wanted lines that are kept to tell whether the next page says the same."""
MAX_PARTS = 64
"""Most values of a label that tells parts of a whole apart."""

_NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-][0-9]{1,3})?")
_NAME_END = re.compile(rb"[{ \t]")
_known: dict[str, tuple[Sample, ...]] = {}

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
    json: bool = False
    """It is JSON, as TensorRT-LLM answers where others have their metrics."""


@dataclass(slots=True)
class _Page:
    """The wanted values of a page, by name and rank."""

    engine: Engine
    usages: Names
    values: dict[str, dict[Rank, float]] = field(default_factory=dict)
    views: dict[str, dict[Rank, float]] = field(default_factory=dict)
    """Rows of a part only: they count where there is no row of the whole."""
    parts: dict[str, dict[str, dict[Rank, float]]] = field(default_factory=dict)
    asleep: dict[Rank, bool] = field(default_factory=dict)
    info: dict[Rank, Mapping[str, str]] = field(default_factory=dict)
    lora: tuple[float, Mapping[str, str]] | None = None
    faults: int = 0

    def ranks(self) -> list[int]:
        """Ranks that the page speaks of."""
        running = self.engine.running
        told = (*self.values.get(running, ()), *self.views.get(running, ()))
        return sorted({0 if rank is None else rank for rank in told})

    def value(self, names: Names, rank: int) -> float | None:
        """The first of these names that the page has for the rank, or for no rank in particular."""
        for name in names:
            for rows in (self.values, self.views):
                found = _of(rows.get(name, {}), rank)
                if found is not None:
                    return found
            told = self.told_parts(name, rank)
            if told:
                return sum(told.values())
        return None

    def told_parts(self, name: str, rank: int) -> dict[str, float]:
        """What the page has for the rank of a name whose rows add up, by part."""
        told = {part: _of(by_rank, rank) for part, by_rank in self.parts.get(name, {}).items()}
        return {part: value for part, value in told.items() if value is not None}

    def fact(self, fact: str, names: Names, rank: int) -> int | None:
        """A whole number above 0 that stands as a value of its own or in a label."""
        value = self.value(names, rank)
        if value is not None:
            return int(value) or None
        label = self.engine.info_labels.get(fact, "")
        return _whole((_of(self.info, rank) or {}).get(label))


class Reader:
    """Reads the pages of one address, one after the other.

    Where the wanted lines of a page are those of the last one, so is what it says: an engine at rest is read at the
    price of finding them.
    """

    __slots__ = ("_lines", "_reading", "_usage_metric")

    def __init__(self, usage_metric: str = "") -> None:
        """``usage_metric`` names the KV-cache usage (a fraction 0..1) where it is not one of the engine's own names."""
        self._usage_metric = usage_metric
        self._lines: list[bytes] = []
        self._reading: Reading | None = None

    def read(self, page: bytes, *, begun: float, ended: float) -> Reading | Unreadable:
        """Read a page that was asked for at ``begun`` and had arrived at ``ended`` (monotonic seconds)."""
        text = b"\n" + page
        for engine in ENGINES:
            if b"\n" + engine.prefix.encode() not in text:
                continue
            usages = (self._usage_metric,) if self._usage_metric else engine.usages
            lines = _pattern(_wanted(engine.prefix, usages)).findall(text)
            if self._reading is not None and lines == self._lines:
                return _later(self._reading, begun, ended)
            found = _Page(engine, usages)
            _fill(found, lines)
            ranks = found.ranks()
            if ranks:
                reading = Reading({rank: _report(found, rank, begun, ended) for rank in ranks}, found.faults)
                self._keep(lines, reading)
                return reading
        return Unreadable(_why_not(text), json=page.lstrip()[:1] in (b"[", b"{"))

    def _keep(self, lines: list[bytes], reading: Reading) -> None:
        small = sum(map(len, lines)) <= REMEMBERED
        self._lines, self._reading = (lines, reading) if small else ([], None)


def _later(reading: Reading, begun: float, ended: float) -> Reading:
    """The same, said again."""
    reports = {rank: replace(report, begun=begun, ended=ended) for rank, report in reading.reports.items()}
    return Reading(reports, reading.faults)


@lru_cache(maxsize=32)  # one for each kind of engine and setting
def _wanted(prefix: str, usages: Names) -> tuple[str, ...]:
    """The wanted names of the engine with that prefix, those of the load first."""
    engine = next(one for one in ENGINES if one.prefix == prefix)
    loads = (engine.running, *engine.waiting, *usages)
    return (*loads, *sorted((engine.values(usages) | engine.others()).difference(loads)))


def _fill(found: _Page, matched: list[bytes]) -> None:
    engine = found.engine
    values, others = engine.values(found.usages), engine.others()
    lines, found.faults = _wanted_lines(matched, _wanted(engine.prefix, found.usages))
    for sample in _samples(lines, found):
        if sample.name in values:
            _take_value(found, sample)
        elif sample.name in others:
            _take_other(found, sample)


def _why_not(text: bytes) -> str:
    if b"\ntrtllm_" in text:
        return (
            "it tells TensorRT-LLM's request times and no load: that needs return_perf_metrics and "
            "enable_iter_perf_stats in a version later than 1.2, and perhaps a first request"
        )
    names = ", ".join(engine.running for engine in ENGINES)
    return f"none of {names} is among its {len(text) - 1} bytes: is this an engine's metrics page?"


def _wanted_lines(found: list[bytes], wanted: tuple[str, ...]) -> tuple[list[str], int]:
    """The lines with a wanted name that are read, and how many are left out.

    Where there are too many, those of the names that stand first in ``wanted`` are kept.
    """
    lines = [line for line in found if len(line) <= MAX_LINE_BYTES]
    if len(lines) > MAX_LINES:
        rank = {name.encode(): place for place, name in enumerate(wanted)}
        lines.sort(key=lambda line: rank[_NAME_END.split(line[1:], maxsplit=1)[0]])
        del lines[MAX_LINES:]
    return [line[1:].decode("utf-8", "replace").rstrip("\r") for line in lines], len(found) - len(lines)


@lru_cache(maxsize=32)  # one for each kind of engine and setting
def _pattern(wanted: tuple[str, ...]) -> re.Pattern[bytes]:
    names = "|".join(map(re.escape, wanted)).encode()
    return re.compile(b"\n(?:%b)(?=[{ \t])[^\n]*" % names)


def _samples(lines: list[str], found: _Page) -> Iterator[Sample]:
    """The samples of these lines; if one of them is broken the others still count."""
    for line in lines:
        head, brace, rest = line.rpartition("}")
        if not brace:
            head, _, rest = line.partition(" ")
        number = rest.strip(" \t")
        if len(head) <= KNOWN_HEAD and _NUMBER.fullmatch(number):
            known = _known.get(head + brace)
            if known is None:
                known = _parsed(f"{head}{brace} 0", found)
                if len(_known) >= KNOWN_HEADS:
                    _known.clear()
                if known:
                    _known[head + brace] = known
            value = float(number)
            for sample in known:
                yield sample._replace(value=value)
        else:
            yield from _parsed(line, found)


def _parsed(line: str, found: _Page) -> tuple[Sample, ...]:
    try:
        families = list(text_string_to_metric_families(line + "\n"))
    except (ValueError, LookupError):
        found.faults += 1
        return ()
    return tuple(sample for family in families for sample in family.samples)


def _take_value(found: _Page, sample: Sample) -> None:
    value = _fraction(sample.value) if sample.name in found.usages else _amount(sample.value)
    rank = _rank(sample.labels, found.engine.ranks)
    if value is None or rank == -1:
        found.faults += 1
        return
    rows = found.views if sample.labels.get(found.engine.split) else found.values
    _keep(rows.setdefault(sample.name, {}), rank, value)


def _keep(by_rank: dict[Rank, float], rank: Rank, value: float) -> None:
    """Rows of one rank that differ in other labels are views of the same queue: the largest, never the sum."""
    by_rank[rank] = max(value, by_rank.get(rank, 0.0))


def _take_other(found: _Page, sample: Sample) -> None:
    engine, labels, value = found.engine, sample.labels, sample.value
    rank = _rank(labels, engine.ranks)
    if rank == -1 or not math.isfinite(value):
        found.faults += 1
    elif sample.name in engine.parts:
        _take_part(found, sample, rank)
    elif sample.name == engine.sleep:
        state = labels.get("sleep_state", "")
        found.asleep[rank] = found.asleep.get(rank, False) or (value == 0 if state == "awake" else value > 0)
    elif sample.name == engine.info:
        found.info[rank] = labels
    elif found.lora is None or value >= found.lora[0]:
        found.lora = (value, labels)  # stale series stay on the page: the youngest counts


def _take_part(found: _Page, sample: Sample, rank: Rank) -> None:
    amount = _amount(sample.value)
    parts = found.parts.setdefault(sample.name, {})
    part = sample.labels.get(found.engine.parts[sample.name], "")
    if amount is None or (part not in parts and len(parts) >= MAX_PARTS):
        found.faults += 1
    else:
        _keep(parts.setdefault(part, {}), rank, amount)


def _report(found: _Page, rank: int, begun: float, ended: float) -> Report:
    engine = found.engine
    waiting, capacity, deferred = _waiting(found, rank)
    loras, max_loras = _loras(found.lora)
    if max_loras is None:
        max_loras = found.fact("max_loras", engine.max_loras, rank)
    return Report(
        begun=begun,
        ended=ended,
        running=int(found.value((engine.running,), rank) or 0),
        waiting=waiting,
        kv_usage=found.value(found.usages, rank),
        total_blocks=found.fact("total_blocks", engine.total_blocks, rank),
        block_size=found.fact("block_size", engine.block_size, rank),
        total_tokens=found.fact("total_tokens", engine.total_tokens, rank),
        waiting_capacity=capacity,
        waiting_deferred=deferred,
        asleep=bool(_of(found.asleep, rank)),
        prefix_queries=found.value(engine.queries, rank),
        prefix_hits=found.value(engine.hits, rank),
        loras=loras,
        max_loras=max_loras,
    )


def _waiting(found: _Page, rank: int) -> tuple[int, int | None, int | None]:
    """Requests that wait: all, those for room, those for another reason; None where reasons are not told apart."""
    engine = found.engine
    waiting = found.value(engine.waiting, rank)
    reasons = found.told_parts(engine.reasons, rank)
    held = [value for names in engine.queues if (value := found.value(names, rank)) is not None]
    if held:
        return int((waiting or 0) + sum(held)), _int(waiting), int(sum(held))
    total = sum(reasons.values()) if waiting is None else waiting
    return int(total), _int(reasons.get("capacity")), _int(reasons.get("deferred"))


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


def _rank(labels: Mapping[str, str], named: Names) -> Rank:
    """The rank that one of these labels names, None for none, -1 for one that makes no sense."""
    text = next((labels[label] for label in named if label in labels), "")
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
