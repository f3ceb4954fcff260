"""The plane's costs as rows, and as a section of the documentation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picker.bench.markdown import markdown_table, measured_on
from picker.bench.servers import BACKENDS

CALLS = {
    "backend": "backend",
    "call": "call",
    "p50_us": "p50 us",
    "ratio": "x floor",
    "usual_ratio": "usual x floor",
    "p99_us": "p99 us",
    "client_cpu_us": "client CPU us",
    "server_cpu_us": "server CPU us",
}
UPKEEP = {"backend": "backend", "what": "what", "value": "measured"}


def call_rows(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each kind of call on each backend; the floor first."""
    rows = []
    for backend in (name for name in BACKENDS if name in numbers):
        found = numbers[backend]
        for call in found["p99_us"]:
            parts = {part: found[part].get(call) for part in list(CALLS)[3:]}
            rows.append({"backend": backend, "call": call, "p50_us": found[f"{call}_p50_us"]} | parts)
    return rows


def upkeep_rows(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Heartbeats and reaping."""
    rows = []
    for backend in BACKENDS:
        found = numbers.get(backend)
        if not found:
            continue
        beats, reaper = found["renewal"], found.get("reaper")
        values = [
            ("heartbeat with few bookings, server CPU us", beats["server_cpu_us"]["few"]),
            ("heartbeat with many bookings, server CPU us", beats["server_cpu_us"]["many"]),
            ("the same, ratio", beats["server_cpu_ratio"]),
        ]
        if reaper:
            values += [
                ("heartbeat in which a silent owner lapsed, server CPU ms", reaper["lapse_ms"]),
                (f"reaping {reaper['bookings']} bookings, slices", reaper["slices"]),
                ("one slice, median, server CPU ms", reaper["slice_p50_ms"]),
                ("one slice, longest, server CPU ms", reaper["slice_max_ms"]),
            ]
        rows += [{"backend": backend, "what": what, "value": value} for what, value in values]
    return rows


def plane_section(numbers: Mapping[str, Any]) -> str:
    """What each call costs, and the upkeep."""
    return f"""## Calls to the plane

The floor is the cheapest exchange with the same server: a SET of 100 bytes on the same connection through the same
client code (Valkey), a request and its reply between two clients (NATS). Calls are made one at a time, all kinds in
turn. `x floor` compares the p50 of the round in which each was disturbed least, `usual x floor` the p50s of the same
round (median). Client CPU is what our side spends on a call, server CPU what the server does: their sum is nearly the
whole latency. A slice of reaping is measured by the server's CPU clock (its threads' `schedstat`), one call at a time.

{markdown_table(CALLS, call_rows(numbers))}
{markdown_table(UPKEEP, upkeep_rows(numbers))}
{measured_on(numbers)}"""
