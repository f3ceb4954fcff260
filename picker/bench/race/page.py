"""The race as rows, and as a page of the documentation. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picker.bench.markdown import markdown_table, measured_on
from picker.bench.race.rows import DEGRADED_MOST_PCT
from picker.bench.race.world import IN_FLIGHT, LEAST_TOKENS, MOST_TOKENS
from picker.core.race import UNSEEN_BY_WORKERS

ROWS = {
    "mode": "mode",
    "replicas": "replicas",
    "rate": "requests/s",
    "workers": "workers",
    "wrong_pick_pct": "wrong picks %",
    "max_over_mean": "max / mean",
    "p99_excess_tokens": "p99 excess tokens",
    "degraded_pct": "degraded %",
    "valid": "valid runs",
}
EVEN = {
    "mode": "mode",
    "time": "time",
    "replicas": "replicas",
    "rate": "requests/s",
    "workers": "workers",
    "max_over_mean_to_one_replica": "max / mean to one replica's",
    "pairs": "pairs",
}
SWEEP = {
    "workers": "workers",
    "unseen": "unseen requests",
    "eventual_wrong_pct": "eventual: wrong %",
    "eventual_max_over_mean": "eventual: max / mean",
    "atomic_max_over_mean": "atomic: max / mean",
    "eventual_over_atomic": "eventual / atomic",
}


def race_page(numbers: Mapping[str, Any]) -> str:
    """The whole page."""
    real = [one for one in numbers["rows"] if one["time"] == "real"]
    virtual = [one for one in numbers["rows"] if one["time"] == "virtual"]
    staleness = numbers["staleness_ms"]
    return f"""# The race between choosing and booking

Replicas choose at the same time on views that are a little late, so they may choose the same worker. This page says how
much that costs in each mode. Made by `make docs` from `benchmarks/results/race.json`; `picker bench race --json`
measures anew.

Requests arrive at random, carry {LEAST_TOKENS} to {MOST_TOKENS} tokens and stay for a lognormal time, {IN_FLIGHT} on
each worker in the mean; each goes to a random replica. Nothing is cached, so load alone decides. A pick is *wrong*
where a worker with strictly fewer tokens was passed over: judged by all picks made until then on the clock that all
processes share, and in mode atomic, where the plane decides, by its own order. *max / mean* is the tokens on the
busiest worker to those on the mean one, averaged over the arrivals; the *excess* is their difference. Values are
medians over the seeds; every mode and number of replicas gets the same requests of a seed. A run with more than
{DEGRADED_MOST_PCT:g} % of degraded picks (the plane did not answer in time, the view decided) is void, and made
again twice at most.

## Real processes

Each replica is a process with its own desk, view and connection to one Valkey.

{markdown_table(ROWS, real)}
## Virtual time

The product's own choice on views that are as late as was measured between three real processes
(p50 {staleness["p50"]} ms, p99 {staleness["p99"]} ms). With 64 workers mode atomic offers the plane the eight best by
the view; a better ninth is then passed over, which counts as wrong and costs little.

{markdown_table(ROWS, virtual)}
{_even_and_threshold(numbers, level="##")}
## Budgets

{measured_on(numbers)}"""


def race_section(numbers: Mapping[str, Any]) -> str:
    """What other pages need of it."""
    return f"""## The race between choosing and booking

How it was measured, and every mode, rate and number of replicas: [race.md](race.md).

{_even_and_threshold(numbers, level="###")}"""


def _even_and_threshold(numbers: Mapping[str, Any], *, level: str) -> str:
    crossings = ", ".join(
        f"{found} with {workers} workers" if found is not None else f"nowhere with {workers} workers"
        for workers, found in numbers["threshold"]["pays_above"].items()
    )
    return f"""{level} As even as one replica

Max / mean to that of one replica with the same requests, seed by seed; medians.

{markdown_table(EVEN, numbers["even"])}
{level} When atomic pays

What spoils a view is the number of requests that the others placed and it does not show yet: arrivals of the whole pool
per second times the seconds that a view is late. In virtual time, views late by a fixed time; the busiest worker in
eventual beside the one in atomic:

{markdown_table(SWEEP, numbers["threshold"]["sweep"])}
Eventual's busiest worker carries 5 % more than atomic's from {crossings} on: about {UNSEEN_BY_WORKERS:g} divided by
the number of workers. The picker takes that as the point from which `PICKER_SYNC=atomic` pays
(`picker.core.race.atomic_pays_above`).
"""
