"""Staleness and its envelope as rows, and as a section of the documentation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picker.bench.markdown import markdown_table, measured_on
from picker.bench.servers import BACKENDS

STALENESS = {
    "backend": "backend",
    "rate": "bookings/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "quiet_p50_ms": "quietest p50 ms",
    "quiet_hop_p50_ms": "bare hop ms",
    "ratio": "x hop",
    "usual_ratio": "usual x hop",
    "bookings": "bookings",
    "unheard": "unheard",
}
ENVELOPE = {
    "backend": "backend",
    "replicas": "replicas",
    "changes_per_s": "changes/s",
    "p50_ms": "p50 ms",
    "cpu_us": "CPU us a change",
    "share": "share of a core",
    "batch_p50_ms": "batches: p50 ms",
    "batch_cpu_us": "CPU us a change",
    "batch_share": "share of a core",
    "kept_up": "kept up",
    "batches_win": "batches win",
}


def staleness_rows(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each rate on each backend."""
    return [
        {"backend": backend, "rate": rate} | found
        for backend in BACKENDS
        for rate, found in numbers.get(backend, {}).items()
    ]


def envelope_rows(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each size of pool on each backend."""
    rows = []
    for backend, cells in numbers.get("envelope", {}).items():
        for cell in cells:
            blocking, batches = cell["blocking"], cell.get("batches", {})
            rows.append(
                {
                    "backend": backend,
                    "replicas": cell["replicas"],
                    "changes_per_s": cell["changes_per_s"],
                    "p50_ms": blocking["p50_ms"],
                    "cpu_us": blocking["cpu_us_per_change"],
                    "share": blocking["cpu_share"],
                    "batch_p50_ms": batches.get("p50_ms"),
                    "batch_cpu_us": batches.get("cpu_us_per_change"),
                    "batch_share": batches.get("cpu_share"),
                    "kept_up": blocking["kept_up"],
                    "batches_win": cell.get("batches_beat_blocking"),
                }
            )
    return rows


def staleness_section(numbers: Mapping[str, Any]) -> str:
    """How late views are, and how far that carries."""
    return f"""## How late a view is

Three replicas in processes of their own book at random moments; a booking's way is from the call at one replica to the
listeners of the view of each other one. The bare hop is a message published by one process and received by the others
on the same server, at the same rate, in windows between those of the bookings. `x hop` compares the least disturbed
window of each, `usual x hop` neighbouring windows (median): the first is held to the budget, the second says what a
busy machine makes of it. *Unheard* are pairs of a booking and another replica that did not hear of it within a second
after the window; one that ends before the plane was told of it is never told.

{markdown_table(STALENESS, staleness_rows(numbers))}
### How far that carries

Each replica folds every change, so its cost grows with the changes of the whole pool (a request makes two: it is booked
and it ends) and not with the replicas. CPU per change holds its share of the calls too. In batches: the feed is read
in steps of 20 ms instead of waiting for each change. They win where they cost less CPU and the view is no later for it.
Replicas and server share two processors here; *kept up* says whether that was enough.

{markdown_table(ENVELOPE, envelope_rows(numbers))}
{measured_on(numbers)}"""
