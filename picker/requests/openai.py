"""OpenAI's completions, chat completions and embeddings, as clients send them and engines take them."""

from __future__ import annotations

from array import array
from collections.abc import Container, Mapping, Sequence
from typing import Any

from picker.requests.ask import BYTES_PER_TOKEN, Api, Ask, BadRequest, Chat, Ids, JsonObject, Prompt, Unread
from picker.requests.content import STEERING, check_messages, checked, conversation, tools_of
from picker.requests.fields import Fields
from stateplane.values import value

MAX_PROMPTS = 2048
"""Most prompts in one request."""
MAX_TOKEN_IDS = 4 * 1024 * 1024
"""Most token ids in one request, all prompts together."""
MAX_SEQUENCES = 16_384
MOST_TOKENS = 2**31 - 1


_USUAL = {"salt": "", "n": 1, "sequences": 1}
"""What `common` tells of bodies that have none of these fields, as most do."""
_UNUSUAL = frozenset({"n", "best_of", "cache_salt"})
_SELDOM = (
    STEERING
    | _UNUSUAL
    | {"tools", "truncate_prompt_tokens", "max_completion_tokens", "add_special_tokens", "priority"}
)
"""Fields that a plain chat does not have."""


@value
class Adapters:
    """The LoRA adapters that a model name may mean."""

    loras: Container[str] = ()
    """Their names; a mapping names the base model of each beside."""
    base_model: str = ""
    """The model that they are adapters of."""

    def of(self, model: str) -> dict[str, Any]:
        """``lora`` and ``base_model`` of a model name."""
        if model and model in self.loras:
            return {"lora": model, "base_model": self._base(model) or model}
        base, _, adapter = model.rpartition(":")  # SGLang's way to name both
        if base and adapter in self.loras:
            return {"lora": adapter, "base_model": base}
        return {"lora": "", "base_model": model}

    def _base(self, lora: str) -> str:
        """Of adapters whose base model is known one by one, that; else the one of all."""
        return str(self.loras[lora]) if isinstance(self.loras, Mapping) else self.base_model


def read_completion(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/v1/completions``.

    Raises:
        BadRequest: a field of the wrong type, or no prompt.

    """
    fields = Fields(body)
    prompts: tuple[Prompt, ...] = ()
    unread = truncation(fields)
    if fields.get("prompt_embeds") is not None:
        unread = Unread.EMBEDDINGS
    else:
        prompts = prompts_of(fields.get("prompt"), "prompt")
    return Ask(
        api=Api.COMPLETIONS,
        prompts=() if unread else prompts,
        add_special_tokens=fields.flag("add_special_tokens", default=True),
        unread=unread,
        estimated_tokens=weight(prompts),
        max_tokens=fields.count("max_tokens", low=0, high=MOST_TOKENS),
        **common(fields, adapters),
    )


def read_chat(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/v1/chat/completions``. A template that the client sends is ignored: the operator's one rules.

    Raises:
        BadRequest: a field of the wrong type, or no messages.

    """
    fields = Fields(body)
    messages = checked(fields.get("messages"))
    if fields.lacks(_SELDOM):
        return _plain_chat(fields, messages, adapters)
    chat, tokens = conversation(fields, messages, tools=tools_of(fields))
    unread = truncation(fields)
    limit = fields.count("max_completion_tokens", low=0, high=MOST_TOKENS)
    limit = limit if limit is not None else fields.count("max_tokens", low=0, high=MOST_TOKENS)
    return Ask(
        api=Api.CHAT,
        prompts=() if unread else (chat,),
        add_special_tokens=fields.flag("add_special_tokens", default=False),
        unread=unread,
        estimated_tokens=tokens,
        max_tokens=limit,
        **common(fields, adapters),
    )


def _plain_chat(fields: Fields, messages: Sequence[JsonObject], adapters: Adapters) -> Ask:
    """What `read_chat` makes of a body that has none of the fields that few have, at half the cost."""
    exact_until, tokens = check_messages(messages)
    limit = fields.count("max_tokens", low=0, high=MOST_TOKENS)
    model = fields.text("model")
    return Ask(
        api=Api.CHAT,
        model=model,
        prompts=(Chat(messages, exact_until=exact_until),),
        stream=fields.flag("stream", default=False),
        max_tokens=limit,
        add_special_tokens=False,
        estimated_tokens=tokens,
        **adapters.of(model),
    )


def read_embeddings(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/v1/embeddings``: ``input`` as OpenAI has it, or ``messages`` as vLLM takes them beside it.

    Raises:
        BadRequest: a field of the wrong type, or nothing to embed.

    """
    return _pooled(Fields(body), adapters, Api.EMBEDDINGS)


def read_pooling(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/pooling`` or ``/classify``, which are shaped as embeddings are.

    Raises:
        BadRequest: a field of the wrong type, or neither input nor messages nor a field that a plug-in may read.

    """
    fields = Fields(body)
    if fields.get("data") is not None and fields.get("input") is None and fields.get("messages") is None:
        return Ask(api=Api.POOLING, unread=Unread.SHAPE, **common(fields, adapters))
    return _pooled(fields, adapters, Api.POOLING)


def _pooled(fields: Fields, adapters: Adapters, api: Api) -> Ask:
    unread = truncation(fields)
    prompts: tuple[Prompt, ...]
    chat = fields.get("messages") is not None
    if chat:
        asked, tokens = conversation(fields, checked(fields.get("messages")), generation_prompt=False)
        prompts = (asked,)
    else:
        prompts = prompts_of(fields.get("input"), "input")
        tokens = weight(prompts)
    return Ask(
        api=api,
        prompts=() if unread else prompts,
        add_special_tokens=fields.flag("add_special_tokens", default=not chat),
        unread=unread,
        estimated_tokens=tokens,
        **common(fields, adapters),
    )


def common(fields: Fields, adapters: Adapters) -> dict[str, Any]:
    """
    What all APIs share: whose model, whose cache, how it is answered.

    Raises:
        BadRequest: a field of the wrong type.

    """
    model = fields.text("model")
    shared: dict[str, Any] = {"model": model, **adapters.of(model), **_USUAL}
    if not fields.lacks(_UNUSUAL):
        n = shared["n"] = fields.count("n", low=1, high=MAX_SEQUENCES) or 1
        best = fields.get("best_of")  # not all engines know it: what makes no sense is ignored
        shared["sequences"] = max(n, best) if type(best) is int and best <= MAX_SEQUENCES else n
        shared["salt"] = fields.text("cache_salt")
    shared["stream"] = fields.flag("stream", default=False)
    shared["priority"] = fields.count("priority", low=-(2**63), high=2**63 - 1)
    return shared


def truncation(fields: Fields) -> Unread | None:
    """Whether the engine is to cut the prompt."""
    return Unread.TRUNCATED if fields.get("truncate_prompt_tokens") is not None else None


def weight(prompts: tuple[Prompt, ...]) -> int:
    """A guess of the tokens of texts, the number of those that are ids."""
    return sum(
        -(-len(prompt) // BYTES_PER_TOKEN) if isinstance(prompt, str) else len(prompt)
        for prompt in prompts
        if isinstance(prompt, str | array)
    )


def prompts_of(value: Any, param: str) -> tuple[Prompt, ...]:
    """
    A string, strings, token ids, or lists of token ids.

    Raises:
        BadRequest: anything else.

    """
    match value:
        case None:
            raise BadRequest(f"{param} is missing: a string, an array of strings, or token ids.", param)
        case str():
            return (value,)
        case [] | [[], *_]:
            raise BadRequest(f"{param} must not be empty.", param)
        case [str(), *_] if all(isinstance(item, str) for item in value):
            _bound(len(value), MAX_PROMPTS, "prompts", param)
            return tuple(value)
        case [int(), *_]:
            _bound(len(value), MAX_TOKEN_IDS, "token ids", param)
            return (ids_of(value, param),)
        case [list(), *_]:
            _bound(len(value), MAX_PROMPTS, "prompts", param)
            total = sum(len(item) for item in value if isinstance(item, list))
            _bound(total, MAX_TOKEN_IDS, "token ids", param)
            return tuple(ids_of(item, f"{param}[{index}]") for index, item in enumerate(value))
    raise BadRequest(f"{param} must be a string, an array of strings, or token ids.", param)


def _bound(count: int, limit: int, what: str, param: str) -> None:
    if count > limit:
        raise BadRequest(f"{param} has {count} {what}; at most {limit} are allowed.", param)


def ids_of(value: object, param: str) -> Ids:
    """
    Token ids.

    Raises:
        BadRequest: it is no array of whole numbers of 32 bits, or an empty one.

    """
    if not isinstance(value, list) or set(map(type, value)) != {int}:
        raise BadRequest(f"{param} must be a non-empty array of token ids (whole numbers).", param)
    try:
        return array("I", value)
    except OverflowError:
        raise BadRequest(f"{param} holds a token id outside 0..4294967295.", param) from None
