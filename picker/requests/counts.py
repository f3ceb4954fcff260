"""What became of the asks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """What became of the asks, since the start."""

    told: int = 0
    partly: int = 0
    """The budget ran out, or a part of the prompt is no text: leading tokens only."""
    unread: int = 0
    no_tokenizer: int = 0
    loading: int = 0
    broken: int = 0
    no_template: int = 0
    template: int = 0
    late: int = 0
    busy: int = 0
    too_long: int = 0
    failed: int = 0
    away: int = 0
    refused: int = 0
    unaskable: int = 0
    closed: int = 0
    load_failures: int = 0
    pieces_hit: int = 0
    pieces_missed: int = 0
    pieces_evicted: int = 0
    engine_calls: int = 0
    """Prompts that an engine was asked to tokenise."""
    engine_failures: int = 0
    """Calls that an engine did not answer in time, or not as it should."""
    engine_breaks: int = 0
    """How often an engine was no longer asked, for it had failed several times."""
    engine_hit: int = 0
    """Prompts whose ids an engine had told before."""
    tokens: int = 0
    """Token ids told."""
    thread_seconds: float = 0.0
    """Time that tokenising threads spent, finished in time or not."""
