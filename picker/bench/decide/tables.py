"""What decisions cost, as tables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Numbers = Mapping[str, Any]
Row = Mapping[str, Any]
Table = tuple[str, Mapping[str, str], Sequence[Row]]

COST = {
    "transport": "transport",
    "plane": "plane",
    "workers": "workers",
    "replicas": "replicas",
    "index_blocks": "blocks",
    "kb": "KB",
    "prompts": "prompts",
    "cpu_us": "CPU us",
    "net_cpu_us": "net us",
    "plane_cpu_us": "plane us",
    "per_s": "/s",
    "rate": "at /s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "rss_mb": "MB",
}
OTHER_RATES = {
    "rate": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_us": "CPU us",
    "decisions": "decisions",
}
EVENTS = {
    "pair": "pair",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "quiet_p50_ms": "without: p50 ms",
    "quiet_p99_ms": "p99 ms",
    "ratio": "x p99",
    "published": "events published",
    "applied": "applied",
    "applied_per_s": "applied/s",
    "behind": "behind at the end",
    "lost": "lost",
}
HELD = {
    "transport": "transport",
    "streams": "streams held",
    "bytes_each": "bytes each",
    "rss_mb": "MB in all",
    "idle_cpu_pct": "CPU, % of a core",
    "idle_cpu_pct_without": "without streams",
    "opened_per_s": "opened/s",
}
FILTER = {
    "what": "",
    "envoy_cpu_us": "Envoy's CPU us",
    "picker_cpu_us": "picker's CPU us",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "per_s": "requests/s",
}
TARGETS = {
    "target": "server",
    "kb": "KB",
    "per_s": "decisions/s",
    "cpu_us": "CPU us",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "rss_mb": "MB",
    "failed": "failed",
}
RATIOS = {
    "kb": "KB",
    "cpu_us": "CPU",
    "per_s": "decisions/s",
    "p50_ms": "p50",
    "p99_ms": "p99",
    "rss_mb": "memory",
}


def tables_of(numbers: Numbers) -> list[Table]:
    """Everything that was measured."""
    found: list[Table] = []
    rows = [in_kb(row) for row in numbers["rows"]]
    if closed := [row for row in rows if row["streams"] is not None]:
        found.append(("What a decision costs", COST, closed))
    if opened := [row for row in rows if row["streams"] is None]:
        found.append(("At other rates, 1 KB", OTHER_RATES, opened))
    if other := numbers.get("against"):
        found.append(
            ("By turns with another server, medians", TARGETS, [in_kb(row) for row in other["rows"]])
        )
        found.append(("Theirs to ours", RATIOS, [in_kb(row) for row in other["theirs_to_ours"]]))
    if events := numbers.get("events"):
        found.append(("Beside KV events", EVENTS, events["pairs"]))
    if held := numbers.get("held"):
        found.append(("Streams that wait", HELD, [held]))
    if filtered := numbers.get("filter"):
        found.append(("A request through Envoy", FILTER, filter_rows(filtered)))
    if profile := numbers.get("profile"):
        found.append(("Where the time goes, us of a decision", *part_rows(profile)))
    return found


def filter_rows(filtered: Numbers) -> list[Row]:
    """Without the filter, with it, and the difference."""
    plain, whole = filtered["without"], filtered["with_filter"]
    more = {key: round(whole[key] - plain[key], 3) for key in FILTER if whole.get(key) and plain.get(key)}
    rows: list[Row] = [{"what": "without the filter"} | plain, {"what": "with it"} | whole]
    return [*rows, {"what": "difference"} | more | {"per_s": None, "picker_cpu_us": None}]


def part_rows(profile: Sequence[Numbers]) -> tuple[Mapping[str, str], list[Row]]:
    """A profile as columns and rows: a line for each part, one column for each size of body."""
    columns = {"part": "part"} | {str(one["body_bytes"]): f"{kb_of(one['body_bytes'])} KB" for one in profile}
    names = dict.fromkeys(name for one in profile for name in one["parts_us"])
    rows: list[Row] = [
        {"part": name} | {str(one["body_bytes"]): one["parts_us"].get(name, 0.0) for one in profile}
        for name in names
    ]
    whole = {"part": "all of it"} | {str(one["body_bytes"]): one["cpu_us"] for one in profile}
    return columns, [*rows, whole]


def in_kb(row: Row) -> Row:
    """The row with its body's size in KB."""
    return {"kb": kb_of(row["body_bytes"])} | dict(row)


def kb_of(size: int) -> float | int:
    """Bytes as KB."""
    return size // 1024 if size % 1024 == 0 else round(size / 1024, 2)
