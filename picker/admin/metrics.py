"""
The catalogue of metrics: every name that the picker exports is declared or derived here.

Names of the field stay as they are (``endpoint_picker_*``); ours start with ``picker_``. Each part counts in a small
dataclass of its own; its fields become ``picker_<part>_<field>_total`` when they are scraped, so that counting costs
an addition. Labels are bounded: ``worker`` takes the pool's workers, at most `LABEL_CAP` of them.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import Any, Literal, Protocol

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from picker.admin.models import ModelMetrics

LABEL_CAP = 2000
"""Most workers that get a series of their own; the rest are summed under ``worker="other"``."""

Result = Literal["hit", "miss", "error"]

DECISION_BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip


class WorkerNumbers(Protocol):
    """What is exported of one worker, at the moment of the scrape."""

    def __call__(self) -> Mapping[str, Mapping[str, float]]:
        """Gauge suffix -> worker -> value."""
        ...


WORKER_GAUGES: Mapping[str, str] = {
    "booked_requests": "Requests that all replicas together have booked on the worker.",
    "booked_blocks": "KV blocks booked on the worker.",
    "booked_prefill_tokens": "Prompt tokens booked on the worker that are still to be computed.",
    "unbooked_requests": "Requests the worker reports beyond what was booked.",
    "unbooked_blocks": "KV blocks the worker reports beyond what was booked.",
    "reported_requests": "Requests running and waiting by the worker's own report.",
    "index_blocks": "Blocks of the prefix index held by the worker.",
    "drift": "Requests that the worker reports, less those booked on it.",
}

GAUGES: Mapping[str, str] = {
    "plane_state": "0 healthy, 1 slow, 2 away.",
    "plane_lag_seconds": "Age of the newest word from the state plane.",
    "plane_staleness_seconds": "From a pick to its sight in the replicas' views, as measured on own picks.",
    "plane_rate_staleness": "Picks of all replicas within one staleness of the view: what the view does not show yet.",
    "plane_atomic_pays_above": "Value of picker_plane_rate_staleness above which mode atomic pays in this pool.",
    "plane_outbox": "Bookings whose newest state has not reached the state plane.",
    "events_connected": "1 while the connection to the KV events' server stands.",
    "events_unrecovered_workers": "Workers whose part of the index is not recovered yet.",
    "members": "Replicas that the state plane knows, this one included.",
    "peers": "Peers that discovery knows.",
    "streams_open": "Open ext_proc streams.",
    "log_streams_open": "Open access log streams.",
    "buffered_bytes": "Bytes of request bodies held now, of PICKER_MAX_BUFFERED_BYTES.",
    "tasks": "Tasks of the event loop; in proportion to the open streams, or something leaks.",
    "certificate_expires_seconds": "When the certificate of the ext_proc port ends, in seconds since 1970; 0: no TLS.",
    "bookings_own": "Bookings this replica owns.",
    "bookings_foreign": "Bookings of other replicas in the view.",
    "bookings_draining": "Draining bookings in the view.",
    "index_entries": "Entries of the prefix index: a block held by a worker.",
    "ready": "1 while the replica is ready.",
    "events_silent_workers": "Workers that are sent requests and tell nothing of their caches.",
    "predictions_failing_models": "Models of whose predicted blocks less than half come true.",
    "settings_differ": "1 while a member runs with other pool-wide settings or model rewrites.",
}


class _Picks(Collector):
    """Requests by result, and how long they took: plain numbers, since every pick adds to them."""

    def __init__(self) -> None:
        self._results: dict[str, int] = {"hit": 0, "miss": 0, "error": 0}
        self._within = [0] * (len(DECISION_BUCKETS) + 1)
        """Decisions by the bucket that they fall into, none of the smaller ones counted in."""
        self._seconds = 0.0
        self.refused: defaultdict[str, int] = defaultdict(int)
        """By code."""
        self.untold: defaultdict[str, int] = defaultdict(int)
        """By reason."""

    def note(self, result: Result, seconds: float) -> None:
        """One request was answered."""
        self._results[result] += 1
        self._within[bisect_left(DECISION_BUCKETS, seconds)] += 1
        self._seconds += seconds

    def collect(self) -> Iterator[Metric]:
        """Every series, as of now."""
        requests = CounterMetricFamily(
            "endpoint_picker_requests",
            "Requests by result: hit = the worker held part of the prefix, miss = none, error = no pick.",
            labels=["result"],
        )
        for result, number in self._results.items():
            requests.add_metric([result], number)
        yield requests
        names = [*map(floatToGoString, DECISION_BUCKETS), "+Inf"]
        yield HistogramMetricFamily(
            "endpoint_picker_decision_duration_seconds",
            "From the request's last byte to the answer.",
            buckets=list(zip(names, accumulate(self._within), strict=True)),
            sum_value=self._seconds,
        )
        yield _labelled("picker_refused", "Requests that got no worker, by code.", "code", self.refused)
        text = "Requests priced without prefix knowledge, by reason."
        yield _labelled("picker_routed_by_load", text, "reason", self.untold)


def _labelled(name: str, text: str, label: str, numbers: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, number in numbers.items():
        family.add_metric([value], number)
    return family


class _Gathered(Collector):
    """Reads the parts' counts and gauges when somebody scrapes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Nothing: names depend on the parts that are wired."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every gathered series, as of now."""
        yield from self._metrics.gathered()


disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one replica, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._picks = _Picks()
        self.registry.register(self._picks)
        self.models = ModelMetrics(self.registry)
        self._counts: dict[str, Callable[[], object]] = {}
        self._gauges: Callable[[], Mapping[str, float]] = dict
        self._workers: WorkerNumbers = dict
        self._pool_size: Callable[[], int] = int
        self._scrapes: Callable[[], Mapping[str, bool]] = dict
        self._predictions: Callable[[], Mapping[str, float]] = dict
        self._pauses = _Pauses()
        self.registry.register(_Gathered(self))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def picked(self, result: Result, seconds: float) -> None:
        """One request was answered."""
        self._picks.note(result, seconds)

    def refused(self, code: str) -> None:
        """One request got no worker; ``code`` is one of ours, never a client's word."""
        self._picks.refused[code] += 1

    def untold(self, reason: str) -> None:
        """One request was priced by load alone; ``reason`` is one of ours."""
        self._picks.untold[reason] += 1

    def gather(
        self,
        *,
        counts: Mapping[str, Callable[[], object]],
        gauges: Callable[[], Mapping[str, float]],
        workers: WorkerNumbers,
        pool_size: Callable[[], int],
        scrapes: Callable[[], Mapping[str, bool]],
        predictions: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """
        Say where the parts' numbers are read: ``counts`` maps a part's name to its dataclass of numbers.
        """
        self._counts = dict(counts)
        self._gauges, self._workers, self._pool_size, self._scrapes = gauges, workers, pool_size, scrapes
        self._predictions = predictions

    def gathered(self) -> Iterator[Metric]:
        """The parts' numbers as series."""
        yield GaugeMetricFamily("endpoint_picker_pool_size", "Workers in the pool.", value=self._pool_size())
        success = GaugeMetricFamily(
            "endpoint_picker_scrape_success", "1 if the worker's last scrape succeeded.", labels=["worker"]
        )
        for worker, good in _capped(self._scrapes()).items():
            success.add_metric([worker], float(good))
        yield success
        for suffix, value in self._gauges().items():
            yield GaugeMetricFamily(f"picker_{suffix}", GAUGES[suffix], value=value)
        for suffix, values in self._workers().items():
            name = "picker_load_drift_requests" if suffix == "drift" else f"picker_worker_{suffix}"
            family = GaugeMetricFamily(name, WORKER_GAUGES[suffix], labels=["worker"])
            for worker, value in _capped(values).items():
                family.add_metric([worker], value)
            yield family
        confirmed = GaugeMetricFamily(
            "picker_predicted_confirmed_ratio",
            "Share of the blocks predicted after a pick that the worker's events confirmed; below 0.5 hashes disagree.",
            labels=["model"],
        )
        for model, ratio in self._predictions().items():
            confirmed.add_metric([model], ratio)
        yield confirmed
        for part, read in self._counts.items():
            yield from _counters(part, read())
        yield from self._pauses.collect()

    def page(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self.registry)

    def close(self) -> None:
        """Stop listening to the garbage collector."""
        self._pauses.close()


def _capped(values: Mapping[str, Any]) -> Mapping[str, float]:
    if len(values) <= LABEL_CAP:
        return values
    named = dict(list(values.items())[:LABEL_CAP])
    named["other"] = sum(list(values.values())[LABEL_CAP:])
    return named


def _counters(part: str, counts: object) -> Iterator[Metric]:
    for field in fields(counts):  # type: ignore[arg-type]
        value = getattr(counts, field.name)
        name = f"picker_{part}_{field.name}"
        if isinstance(value, int | float):
            yield CounterMetricFamily(name, f"{part}: {field.name.replace('_', ' ')}.", value=value)
        elif is_dataclass(value):
            yield from _counters(f"{part}_{field.name}", value)
        elif isinstance(value, Mapping):
            family = CounterMetricFamily(name, f"{part}: {field.name.replace('_', ' ')}.", labels=["reason"])
            for reason, number in value.items():
                family.add_metric([str(reason)], number)
            yield family


class _Pauses:
    """How long the garbage collector stopped the process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0
        self._begun = 0.0
        gc.callbacks.append(self._seen)

    def _seen(self, phase: str, _info: Mapping[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._begun = now
            return
        self.seconds += now - self._begun
        self.longest = max(self.longest, now - self._begun)

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "picker_gc_pause_seconds", "Time stopped by the garbage collector.", value=self.seconds
        )
        yield GaugeMetricFamily("picker_gc_longest_pause_seconds", "Longest single stop.", value=self.longest)

    def close(self) -> None:
        if self._seen in gc.callbacks:
            gc.callbacks.remove(self._seen)
