"""`/metrics` in vLLM's names, old, new or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from picker.sim.engine.engine import Engine

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Timings:
    """Histograms of what a finished request went through, in real seconds."""

    def __init__(self, registry: CollectorRegistry, *, model: str, engine: str) -> None:
        def histogram(name: str, text: str) -> Histogram:
            family = Histogram(name, text, ("model_name", "engine"), buckets=_SECONDS, registry=registry)
            return family.labels(model_name=model, engine=engine)

        self.first_token = histogram("vllm:time_to_first_token_seconds", "Arrival to first token")
        self.queue = histogram("vllm:request_queue_time_seconds", "Arrival to admission")
        self.whole = histogram("vllm:e2e_request_latency_seconds", "Arrival to last token")


class State(Collector):
    """Gauges and counters read from the engine at the moment of the scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        options = engine.options
        self._labels = {"model_name": options.model, "engine": str(options.rank)}
        self._old = options.metric_names in ("old", "both")
        self._new = options.metric_names in ("new", "both")

    def collect(self) -> Iterator[Metric]:
        """All families, in vLLM's names."""
        scheduler, pool = self._engine.scheduler, self._engine.pool
        yield self._gauge("num_requests_running", "Requests in the batch", len(scheduler.running))
        yield self._gauge("num_requests_waiting", "Requests in the queue", len(scheduler.waiting))
        if self._new:
            yield self._waiting_by_reason()
            yield self._sleep_state()
        for prefix, usage in self._generations():
            yield self._gauge(usage, "Share of KV blocks in use, 0 to 1", pool.used / pool.total)
            counts = scheduler.counts
            yield self._counter(
                f"{prefix}prefix_cache_queries", "Prompt tokens looked up", counts.prompt_tokens
            )
            yield self._counter(f"{prefix}prefix_cache_hits", "Prompt tokens found", counts.cached_tokens)
        yield self._counter(
            "prompt_tokens", "Prompt tokens of admitted requests", scheduler.counts.prompt_tokens
        )
        yield self._counter("generation_tokens", "Tokens said", scheduler.counts.output_tokens)
        yield self._cache_config()
        if self._engine.options.loras:
            yield self._loras()

    def _generations(self) -> list[tuple[str, str]]:
        old = [("gpu_", "gpu_cache_usage_perc")] if self._old else []
        return [*old, *([("", "kv_cache_usage_perc")] if self._new else [])]

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _split(self, name: str, label: str, values: dict[str, float]) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", name, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], value)
        return family

    def _waiting_by_reason(self) -> Metric:
        waiting = len(self._engine.scheduler.waiting)
        asleep = self._engine.sleep_level > 0
        return self._split(
            "num_requests_waiting_by_reason",
            "reason",
            {"capacity": 0 if asleep else waiting, "deferred": waiting if asleep else 0},
        )

    def _sleep_state(self) -> Metric:
        level = self._engine.sleep_level
        return self._split(
            "engine_sleep_state",
            "sleep_state",
            {"awake": level == 0, "weights_offloaded": level == 1, "discard_all": level == 2},
        )

    def _cache_config(self) -> Metric:
        options = self._engine.options
        facts = {
            "block_size": str(options.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "engine": str(options.rank),
            "num_gpu_blocks": str(options.blocks),
            "sliding_window": "None",
        }
        if self._new:
            facts["kv_cache_size_tokens"] = str(options.blocks * options.block_size)
        family = GaugeMetricFamily("vllm:cache_config_info", "How the cache is laid out", labels=list(facts))
        family.add_metric(list(facts.values()), 1)
        return family

    def _loras(self) -> Metric:
        scheduler, loras = self._engine.scheduler, self._engine.options.loras
        facts = {
            "max_lora": str(len(loras)),
            "running_lora_adapters": ",".join(sorted({each.lora for each in scheduler.running if each.lora})),
            "waiting_lora_adapters": ",".join(sorted({each.lora for each in scheduler.waiting if each.lora})),
        }
        family = GaugeMetricFamily("vllm:lora_requests_info", "Adapters at work", labels=list(facts))
        family.add_metric(list(facts.values()), 1)
        return family


class Page:
    """The whole page of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(State(engine))
        self.timings = Timings(self._registry, model=engine.options.model, engine=str(engine.options.rank))

    def text(self) -> bytes:
        """The page as Prometheus text."""
        return generate_latest(self._registry)
