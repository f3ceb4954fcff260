"""The policies' rows, and a section of the documentation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from picker.bench.markdown import markdown_table, measured_on

ROWS = {
    "policy": "policy",
    "replicas": "replicas",
    "reused_pct": "reused %",
    "reused_error_pct": "+- %",
    "ttft_p50_ms": "first token p50 ms",
    "ttft_p90_ms": "first token p90 ms",
    "busiest_over_mean": "busiest / mean",
    "seeds": "seeds",
}


def quality_section(results: Sequence[Mapping[str, Any]]) -> str:
    """One table for each trace."""
    parts = [
        "## What the decisions are worth\n",
        "`picker bench quality` sends a published trace to simulated engines in virtual time. The decision code is",
        "the product's own: index, view, load, price and choice, each replica fed by the engines' events through a",
        "bridge, and by the other replicas' bookings, all a little late. *picker_eventual* shares bookings,",
        "*picker_isolated* does not. *omniscient* is the same price on what the engines truly hold and carry, at once",
        "and in one place; *least_load* counts requests, exactly. *reused*: prompt tokens found in the engines'",
        "caches; *busiest / mean*: computed prompt tokens. A tie that falls otherwise changes all that follows, so",
        "what the budget compares is played with several seeds; *+-* is the standard error.\n",
    ]
    for numbers in results:
        kept = numbers.get("kept")
        parts += [f"### {numbers['trace']}\n", markdown_table(ROWS, numbers["rows"])]
        if kept:
            error = "" if kept["error"] is None else f" +- {kept['error']:.4f}"
            parts.append(f"{kept['replicas']} replicas reuse {kept['share']:.4f}{error} of what one does.\n")
        parts.append(measured_on(numbers))
    return "\n".join(parts)
