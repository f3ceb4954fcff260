"""The names by which engines tell their load on a metrics page, old and new.

Which engine a page is of shows in its names alone: nobody has to set it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Names = tuple[str, ...]
"""Names of one quantity, the one that counts first; the others are left alone where it stands."""

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's names. Empty: it does not tell that."""

    prefix: str
    """All its names begin so."""
    running: str
    waiting: Names
    usages: Names
    """Share of the KV cache in use: 0..1, whatever the name says."""
    ranks: Names = ()
    """Labels that name the data-parallel rank."""
    split: str = ""
    """A label whose rows are views of a part, beside a row of the whole in which it is empty or missing."""
    queues: tuple[Names, ...] = ()
    """Queues beside the waiting one, of requests held back for another reason than room; each request is in one."""
    parts: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Names whose rows add up to a whole, and the label that tells them apart."""
    reasons: str = ""
    """Those waiting by reason, ``capacity`` and ``deferred``; one of ``parts``."""
    queries: Names = ()
    """Counter: tokens looked up in the prefix cache."""
    hits: Names = ()
    """Counter: tokens found there."""
    total_blocks: Names = ()
    block_size: Names = ()
    total_tokens: Names = ()
    max_loras: Names = ()
    info: str = ""
    """A row that tells its facts in labels, and these labels by the fact."""
    info_labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    sleep: str = ""
    loras: str = ""

    def values(self, usages: Names) -> frozenset[str]:
        """Names whose value counts, with these for the usage."""
        found = {self.running, *self.waiting, *usages, *self.queries, *self.hits, *self.max_loras}
        found.update(self.total_blocks, self.block_size, self.total_tokens, *self.queues)
        return frozenset(found - self.parts.keys())

    def others(self) -> frozenset[str]:
        """Names whose labels count too."""
        return frozenset({*self.parts, self.info, self.sleep, self.loras} - {""})


VLLM = Engine(
    prefix="vllm:",
    running="vllm:num_requests_running",
    waiting=("vllm:num_requests_waiting",),
    usages=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ranks=("engine", "dp_rank"),
    parts=MappingProxyType({"vllm:num_requests_waiting_by_reason": "reason"}),
    reasons="vllm:num_requests_waiting_by_reason",
    queries=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    hits=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    info="vllm:cache_config_info",
    info_labels=MappingProxyType(
        {
            "total_blocks": "num_gpu_blocks",
            "block_size": "block_size",
            "total_tokens": "kv_cache_size_tokens",
        }
    ),
    sleep="vllm:engine_sleep_state",
    loras="vllm:lora_requests_info",
)
"""0.8.5 to 0.33."""

SGLANG = Engine(
    prefix="sglang:",
    running="sglang:num_running_reqs",
    waiting=("sglang:num_queue_reqs",),
    usages=("sglang:token_usage",),
    ranks=("dp_rank",),
    split="priority",
    queues=(
        ("sglang:num_grammar_queue_reqs",),
        ("sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs"),
        ("sglang:num_prefill_inflight_queue_reqs",),
        ("sglang:num_decode_prealloc_queue_reqs",),
        ("sglang:num_decode_transfer_queue_reqs",),
    ),
    parts=MappingProxyType({"sglang:cached_tokens_total": "cache_source"}),
    queries=("sglang:prompt_tokens_total",),
    hits=("sglang:cached_tokens_total",),
    total_blocks=("sglang:num_pages",),
    block_size=("sglang:page_size",),
    total_tokens=("sglang:max_total_num_tokens",),
    max_loras=("sglang:lora_pool_slots_total",),
    info="sglang:cache_config_info",
    info_labels=MappingProxyType({"total_blocks": "num_pages", "block_size": "page_size"}),
)
"""0.4 to 0.5.23. It counts its adapters and does not name them."""

TENSORRT_LLM = Engine(
    prefix="trtllm_",
    running="trtllm_num_requests_running",
    waiting=("trtllm_num_requests_waiting",),
    usages=("trtllm_kv_cache_utilization",),
    total_blocks=("trtllm_kv_cache_max_blocks",),
    block_size=("trtllm_kv_cache_tokens_per_block",),
)
"""After 1.2. Of its prefix cache it tells a rate only, of adapters nothing."""

ENGINES = (VLLM, SGLANG, TENSORRT_LLM)

TENSORRT_LLM_PATH = "/prometheus/metrics"
"""Where TensorRT-LLM tells its load in this form: its ``/metrics`` is JSON, and reading that empties it."""
