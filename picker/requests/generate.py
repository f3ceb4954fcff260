"""Engines' own paths: vLLM's ``/inference/v1/generate``, SGLang's ``/generate``, and what is scored in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picker.requests.ask import BYTES_PER_TOKEN, Api, Ask, BadRequest, Prompt, Unread
from picker.requests.fields import Fields
from picker.requests.openai import MAX_SEQUENCES, MOST_TOKENS, Adapters, common, ids_of, prompts_of, weight

_MEDIA = ("image_data", "audio_data", "video_data")
_TEXTS = ("text", "prompt", "inputs")
"""Fields that hold the prompt: SGLang's, that of vLLM's first server, that of others."""
_PAIRED = (
    "text_1", "text_2", "query", "queries", "documents", "items", "data_1", "data_2",
)  # fmt: skip


def read_generate(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/generate``: ``text`` or ``input_ids``, one or several.

    Raises:
        BadRequest: a field of the wrong type.

    """
    fields = Fields(body)
    sampling = fields.get("sampling_params")
    sampling = sampling[0] if isinstance(sampling, list) and sampling else sampling
    steps = Fields(sampling if isinstance(sampling, dict) else {})
    shared = _shared(fields, steps, adapters, "max_new_tokens") | _lora(fields)
    shared["salt"] = fields.text("extra_key") or shared["salt"]
    field = "input_ids" if fields.get("input_ids") is not None else next(
        (name for name in _TEXTS if fields.get(name) is not None), ""
    )  # fmt: skip
    unread, prompts = None, tuple[Prompt, ...]()
    if fields.get("input_embeds") is not None:
        unread = Unread.EMBEDDINGS
    elif not field:
        unread = Unread.SHAPE
    else:
        prompts = prompts_of(fields.get(field), field)
    if any(fields.get(name) for name in _MEDIA):
        unread = Unread.MEDIA
    return Ask(
        api=Api.GENERATE,
        prompts=() if unread else prompts,
        unread=unread,
        estimated_tokens=weight(prompts),
        **shared,
    )


def read_token_generate(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/inference/v1/generate``: token ids, and which spans of them are media.

    Raises:
        BadRequest: a field of the wrong type, or no token ids.

    """
    fields = Fields(body)
    steps = Fields(fields.mapping("sampling_params"))
    shared = _shared(fields, steps, adapters, "max_tokens")
    given = fields.get("token_ids")
    if given is None:
        raise BadRequest("token_ids is missing: an array of whole numbers.", "token_ids")
    prompts = prompts_of(given, "token_ids") if isinstance(given, list) else (ids_of(given, "token_ids"),)
    if len(prompts) != 1:
        raise BadRequest("token_ids must be one array of whole numbers.", "token_ids")
    media = bool(fields.get("features"))
    return Ask(
        api=Api.GENERATE,
        prompts=() if media else prompts,
        unread=Unread.MEDIA if media else None,
        estimated_tokens=weight(prompts),
        **shared,
    )


def read_pairs(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/score`` or ``/rerank``: by load, with a guess of what it weighs.

    Raises:
        BadRequest: a field of the wrong type.

    """
    fields = Fields(body)
    texts = [_texts(fields.get(name)) for name in _PAIRED]
    # The shorter side, a query mostly, is computed once with each of the other.
    sides = [found for found in texts if found]
    characters = sum(sum(map(len, side)) for side in sides)
    if len(sides) > 1:
        most = max(len(side) for side in sides)
        characters += sum((most - 1) * len(side[0]) for side in sides if len(side) == 1)
    return Ask(
        api=Api.POOLING,
        unread=Unread.PAIRS,
        estimated_tokens=-(-characters // BYTES_PER_TOKEN),
        **common(fields, adapters),
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _shared(fields: Fields, steps: Fields, adapters: Adapters, limit: str) -> dict[str, Any]:
    """What all APIs share, with what stands among the sampling parameters here."""
    n = steps.count("n", low=1, high=MAX_SEQUENCES)
    shared = common(fields, adapters)
    if n is not None:
        shared |= {"n": n, "sequences": n}
    return shared | {"max_tokens": steps.count(limit, low=0, high=MOST_TOKENS)}


def _lora(fields: Fields) -> dict[str, Any]:
    """SGLang names the adapter itself; where several do, the prompts are told apart no further."""
    named = fields.get("lora_path")
    if isinstance(named, list):
        first = named[0] if named else None
        named = first if isinstance(first, str) and all(each == first for each in named) else None
    return (
        {"lora": Fields({"lora_path": named}).text("lora_path")} if isinstance(named, str) and named else {}
    )
