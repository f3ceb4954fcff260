"""What the bench of decisions is held to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from picker.bench.budget import Budget
from picker.bench.decide.extent import KB, MIDDLE, SMALL, USUAL
from picker.bench.decide.rows import find

CPU_LIMITS = (("off", SMALL, 170.0), ("eventual", SMALL, 250.0), ("off", MIDDLE, 500.0))
"""Plane, bytes of body, microseconds: at 16 streams and 64 workers, tokens cached, on the native transport."""
CHEAPER = 5.0
"""Times that grpcio costs at least, at 1 KB."""
STORM_LIMIT = 2.5
HELD_LIMIT, HELD_IDLE_PCT = 20 * KB, 3.0


def budgets(numbers: Mapping[str, Any]) -> list[Budget]:
    """Those of what was measured."""
    return [*_row_budgets(numbers["rows"]), *_other_budgets(numbers)]


def _row_budgets(rows: Sequence[Mapping[str, Any]]) -> Iterator[Budget]:
    usual = {
        "workers": USUAL, "replicas": 1, "index_blocks": 0, "prompts": "known", "streams": 16,
        "mode": "full_duplex_streamed",
    }  # fmt: skip
    for plane, size, limit in CPU_LIMITS:
        row = find(rows, transport="native", plane=plane, body_bytes=size, **usual)
        if row is not None:
            name = f"CPU of a decision, {size / KB:g} KB, {USUAL} workers, plane {plane}"
            yield Budget(name, row["cpu_us"], limit, "us")
    native = find(rows, transport="native", plane="off", body_bytes=SMALL, **usual)
    grpcio = find(rows, transport="grpcio", plane="off", body_bytes=SMALL, **usual)
    if native is not None and grpcio is not None and native["cpu_us"]:
        ratio = round(grpcio["cpu_us"] / native["cpu_us"], 2)
        yield Budget("CPU of grpcio to native, 1 KB", ratio, CHEAPER, "x", at_least=True)
    if rows:
        yield Budget("streams that failed or were refused", sum(row["failed"] for row in rows), 0)


def _other_budgets(numbers: Mapping[str, Any]) -> Iterator[Budget]:
    stormy, kept = numbers.get("events"), numbers.get("held")
    if lacking := numbers.get("not_measured"):
        yield Budget(f"parts that could not be measured ({', '.join(lacking)})", len(lacking), 0)
    if stormy is not None:
        name = f"p99 with {stormy['events_per_s']:g} KV events/s to p99 without, median of {len(stormy['pairs'])} pairs"
        yield Budget(name, stormy["ratio"], STORM_LIMIT, "x")
        least = round(0.95 * stormy["events_per_s"], 1)
        yield Budget("KV events applied", stormy["applied_per_s"], least, "/s", at_least=True)
        yield Budget("KV events lost", stormy["lost"], 0)
    if kept is not None:
        yield Budget(
            f"memory of each of {kept['streams']} held streams", kept["bytes_each"], HELD_LIMIT, "bytes"
        )
        yield Budget("CPU while they wait", kept["idle_cpu_pct"], HELD_IDLE_PCT, "% of a core")
