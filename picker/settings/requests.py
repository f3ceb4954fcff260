"""From body to token ids."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import (
    Field,
    field_validator,
)

from picker.settings.part import Part, Seconds, Words

SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization", "x-api-key", "api-key")


class RequestSettings(Part):
    """From body to token ids."""

    title = "Requests"

    tokenizers: str = ""
    """
    Where each model's token ids come from: `MODEL=DIR` pairs separated by commas. DIR holds `tokenizer.json`, or
    `*.tiktoken` with a `tiktoken.json` (`pattern`, `special_tokens`, `normalization`), and the chat template in
    `chat_template.jinja` or `tokenizer_config.json`. `MODEL=http://host:port` asks that engine's own `/tokenize`
    within the budget. `*=` serves every other model. Without one a model is routed by load alone.
    """
    tokenize_budget_seconds: Seconds = Field(default=0.1, gt=0, le=10)
    """
    Longest time that tokenising may take before a request is routed by load alone. Gateways' message timeouts
    start at 0.2.
    """
    tokenize_threads: int = Field(default=2, ge=1, le=64)
    """
    Threads that tokenise, beside the event loop. Long prompts leave one of several free, so two or more keep short
    prompts quick.
    """
    tokenize_queue: int = Field(default=256, ge=1)
    """Most prompts waiting for a tokenising thread; past it a request is routed by load alone."""
    loras: Words = ()
    """
    Names of LoRA adapters: a request whose model is one of them is an adapter of the base model named in
    `PICKER_BASE_MODEL`.
    """
    base_model: str = ""
    """The base model of the adapters in `PICKER_LORAS`."""
    model_rewrite_file: Path | None = None
    """
    File of model rewrites, watched: InferenceModelRewrite objects as YAML or JSON, several as a stream or a list.
    Unset: models go on as clients name them.
    """
    tenant_header: str = Field(default="", max_length=128)
    """
    Header whose value is the tenant of a request, in `/why/ID` and, of those that ask most, in `/status.json`. The
    gateway should set it, or clients may say anything. Empty: none.
    """

    @field_validator("tenant_header")
    @classmethod
    def _shows_no_secret(cls, value: str) -> str:
        name = value.strip().lower()
        if name and not re.fullmatch(r"[a-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{value!r} is no name of a header")
        if name in SECRET_HEADERS:
            raise ValueError(
                f"{name} holds a secret, and its value would be shown; let the gateway set another header"
            )
        return name

    read_usage: bool = True
    """Read the token usage that engines tell in responses, where the gateway shows their bodies."""
    request_key_headers: Words = ("x-request-id",)
    """
    Headers that name a logical request over its retries; the first one present counts, together with the
    body's digest.
    """
