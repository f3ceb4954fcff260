"""What a worker costs a request."""

from __future__ import annotations

from pydantic import (
    Field,
)

from picker.settings.part import Part, Words, also


class PriceSettings(Part):
    """What a worker costs a request: the parameters of the price."""

    title = "Price"

    block_size: int = Field(
        default=16, ge=1, le=1024, validation_alias=also("BLOCK_SIZE", "DYN_KV_CACHE_BLOCK_SIZE")
    )
    """
    Tokens per block, for the whole pool. Smaller engine blocks are joined; a size that does not divide it is
    refused.
    """
    overlap_credit: float = Field(
        default=1.0,
        ge=0,
        le=1,
        validation_alias=also("OVERLAP_CREDIT", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"),
    )
    """How much of a cached prefix is taken off the prefill: 1 all of it, 0 ignores caches."""
    prefill_scale: float = Field(
        default=1.0, ge=0, validation_alias=also("PREFILL_SCALE", "DYN_ROUTER_PREFILL_LOAD_SCALE")
    )
    """Weight of prefill blocks against decode blocks."""
    request_weight: float = Field(
        default=0.0,
        ge=0,
        validation_alias=also("REQUEST_WEIGHT", "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT"),
    )
    """Price of each request a worker already carries, in blocks."""
    host_tier_weight: float = Field(
        default=0.75,
        ge=0,
        le=1,
        validation_alias=also("HOST_TIER_WEIGHT", "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT"),
    )
    """Worth of a block held in host memory, against one on the device."""
    disk_tier_weight: float = Field(
        default=0.25,
        ge=0,
        le=1,
        validation_alias=also("DISK_TIER_WEIGHT", "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT"),
    )
    """Worth of a block held on disk, against one on the device."""
    temperature: float = Field(
        default=0.0, ge=0, validation_alias=also("TEMPERATURE", "DYN_ROUTER_TEMPERATURE")
    )
    """0 takes the cheapest worker; above it workers are drawn by softmax of their prices."""
    fallbacks: int = Field(default=0, ge=0, le=8)
    """
    How many further endpoints are named behind the chosen one, for gateways that walk the list on a retry.
    """
    lora_narrow: bool = True
    """
    Send a request for a LoRA adapter only to workers that hold it, as labels and lists of models say, as long as one of
    them may be chosen. A worker that does not say may hold it, and pays `PICKER_LORA_LOAD_BLOCKS`.
    """
    lora_load_blocks: float = Field(default=64.0, ge=0, le=1_048_576)
    """
    Price of bringing a LoRA adapter to work on a worker, in blocks: a worker that runs it already takes so much more
    load before others get its requests.
    """
    model_narrow: bool = True
    """
    Where workers serve different models, as their lists of models say, send a request only to those that serve the one
    it names. Where none is known to, or a list is not told, nobody is refused for it.
    """
    criteria: Words = ()
    """
    Criteria of your own, in the order they are asked: names of entry points in the group `picker.criteria`, or
    `labels`.
    """
    label_affinity: Words = ()
    """
    With the criterion `labels`: `HEADER=LABEL` pairs. A request that carries HEADER goes to workers whose LABEL has
    its value, or, with `HEADER=LABEL:BLOCKS`, pays BLOCKS more on others.
    """
    max_worker_requests: int = Field(default=0, ge=0)
    """
    Most requests booked on one worker; when every worker is there, requests are answered with 429. 0: no
    limit.
    """
