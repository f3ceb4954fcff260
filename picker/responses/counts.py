"""What became of the responses that were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Unreadable(StrEnum):
    """Why a response's usage is not known, or its model name not put back."""

    ENCODED = "encoded"  # a content encoding that is not read
    CONTENT_TYPE = "content_type"  # neither JSON nor an event stream
    TOO_LARGE = "too_large"  # the usage stands further from the end than what is kept
    INTRICATE = (
        "intricate"  # more brackets and strings than its length grants: a name past there is not put back
    )
    BROKEN = "broken"  # not the JSON that its content type promises
    CUT = "cut"  # the response ended early: its end was never seen


def _none_yet() -> dict[str, int]:
    return {str(reason): 0 for reason in Unreadable}


@dataclass(slots=True)
class Counts:
    """What became of the responses that were shown and read, since the start."""

    usage_told: int = 0
    usage_absent: int = 0
    """Responses read to their end that told none: clients of event streams have to ask for it."""
    usage_unreadable: dict[str, int] = field(default_factory=_none_yet)
    renamed: int = 0
    """Responses in which the client's model name was put back."""
    unnamed: int = 0
    """Responses read to their end that named no model."""
    rename_unreadable: dict[str, int] = field(default_factory=_none_yet)
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens_told: int = 0
    """Cached prompt tokens by the engine's word, of responses to prompts whose tokens are known to the end."""
    cached_tokens_predicted: int = 0
    """Of the same responses, the cached tokens that the pick reckoned with."""
    overestimated: int = 0
    """Of the same responses, those where the engine found less than the pick reckoned with."""
