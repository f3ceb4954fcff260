"""OpenAI's completions and chat completions, as clients send them and engines take them."""

from __future__ import annotations

from array import array
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from picker.requests.ask import BYTES_PER_TOKEN, Api, Ask, BadRequest, Chat, Ids, Prompt, Unread
from picker.requests.fields import Fields, kind

MAX_PROMPTS = 2048
"""Most prompts in one completion request."""
MAX_TOKEN_IDS = 4 * 1024 * 1024
"""Most token ids in one request, all prompts together."""
MAX_MESSAGES = 10_000
MAX_TOOLS = 1024
MAX_PARTS = 10_000
"""Most content parts in one message."""
MEDIA_TOKENS = 512
"""What a picture or a sound is guessed to weigh; the engine alone knows."""

TEXT_PARTS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
"""Content parts that are text, and the field that holds it. Any other part ends what is known of the prompt."""

_OWN = frozenset({"messages", "conversation", "tools", "documents", "chat_template", "tokenize"})
"""Template arguments that would replace the conversation or the operator's template."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """The LoRA adapters that a model name may mean."""

    loras: Container[str] = ()
    base_model: str = ""
    """The model that they are adapters of."""

    def of(self, model: str) -> dict[str, Any]:
        """``lora`` and ``base_model`` of a model name."""
        if model and model in self.loras:
            return {"lora": model, "base_model": self.base_model or model}
        return {"lora": "", "base_model": model}


def read_completion(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/v1/completions``.

    Raises:
        BadRequest: a field of the wrong type, or no prompt.

    """
    fields = Fields(body)
    prompts: tuple[Prompt, ...] = ()
    unread = _truncation(fields)
    if fields.get("prompt_embeds") is not None:
        unread = Unread.EMBEDDINGS
    else:
        prompts = _prompts(fields.get("prompt"))
    return Ask(
        api=Api.COMPLETIONS,
        prompts=() if unread else prompts,
        add_special_tokens=fields.flag("add_special_tokens", default=True),
        unread=unread,
        estimated_tokens=sum(_weight(prompt) for prompt in prompts),
        max_tokens=fields.count("max_tokens", low=0, high=2**31 - 1),
        **_common(fields, adapters),
    )


def read_chat(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/v1/chat/completions``. A template that the client sends is ignored: the operator's one rules.

    Raises:
        BadRequest: a field of the wrong type, or no messages.

    """
    fields = Fields(body)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a non-empty array of objects.", "messages")
    if len(messages) > MAX_MESSAGES:
        raise BadRequest(
            f"messages has {len(messages)} entries; at most {MAX_MESSAGES} are allowed.", "messages"
        )
    exact_until, tokens = _check_messages(messages)
    arguments = {
        key: value for key, value in fields.mapping("chat_template_kwargs").items() if key not in _OWN
    }
    if (effort := fields.get("reasoning_effort")) is not None:
        arguments.setdefault("reasoning_effort", effort)
    switches = Fields({**body, **arguments})
    unread = _truncation(fields)
    limit = fields.count("max_completion_tokens", low=0, high=2**31 - 1)
    limit = limit if limit is not None else fields.count("max_tokens", low=0, high=2**31 - 1)
    chat = Chat(
        messages=messages,
        tools=_tools(fields),
        documents=fields.objects("documents", limit=MAX_TOOLS),
        add_generation_prompt=switches.flag("add_generation_prompt", default=True),
        continue_final_message=switches.flag("continue_final_message", default=False),
        arguments=arguments,
        exact_until=exact_until,
    )
    return Ask(
        api=Api.CHAT,
        prompts=() if unread else (chat,),
        add_special_tokens=fields.flag("add_special_tokens", default=False),
        unread=unread,
        estimated_tokens=tokens,
        max_tokens=limit,
        **_common(fields, adapters),
    )


def _common(fields: Fields, adapters: Adapters) -> dict[str, Any]:
    model = fields.text("model")
    return {
        "model": model,
        **adapters.of(model),
        "salt": fields.text("cache_salt"),
        "stream": fields.flag("stream", default=False),
        "n": fields.count("n", low=1, high=16_384) or 1,
    }


def _truncation(fields: Fields) -> Unread | None:
    return Unread.TRUNCATED if fields.get("truncate_prompt_tokens") is not None else None


def _weight(prompt: Prompt) -> int:
    match prompt:
        case str():
            return -(-len(prompt) // BYTES_PER_TOKEN)
        case array():
            return len(prompt)
    return 0


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """A string, strings, token ids, or lists of token ids; anything else is the client's mistake."""
    match value:
        case None:
            raise BadRequest("prompt is missing: a string, an array of strings, or token ids.", "prompt")
        case str():
            return (value,)
        case [] | [[], *_]:
            raise BadRequest("prompt must not be empty.", "prompt")
        case [str(), *_] if all(isinstance(item, str) for item in value):
            _bound(len(value), MAX_PROMPTS, "prompts")
            return tuple(value)
        case [int(), *_]:
            _bound(len(value), MAX_TOKEN_IDS, "token ids")
            return (_ids(value, "prompt"),)
        case [list(), *_]:
            _bound(len(value), MAX_PROMPTS, "prompts")
            _bound(sum(len(item) for item in value if isinstance(item, list)), MAX_TOKEN_IDS, "token ids")
            return tuple(_ids(item, f"prompt[{index}]") for index, item in enumerate(value))
    raise BadRequest("prompt must be a string, an array of strings, or token ids.", "prompt")


def _bound(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise BadRequest(f"prompt has {count} {what}; at most {limit} are allowed.", "prompt")


def _ids(value: object, param: str) -> Ids:
    if not isinstance(value, list) or set(map(type, value)) != {int}:
        raise BadRequest(f"{param} must be a non-empty array of token ids (whole numbers).", param)
    try:
        return array("I", value)
    except OverflowError:
        raise BadRequest(f"{param} holds a token id outside 0..4294967295.", param) from None


def _check_messages(messages: Sequence[object]) -> tuple[int | None, int]:
    """Check roles and contents; the first message that is not text throughout, and a guess of the tokens."""
    exact_until: int | None = None
    characters = media = 0
    for index, message in enumerate(messages):
        param = f"messages[{index}]"
        if not isinstance(message, dict):
            raise BadRequest(f"{param} must be an object, not {kind(message)}.", param)
        if not isinstance(message.get("role"), str):
            raise BadRequest(f"{param}.role must be a string.", f"{param}.role")
        text, others = _check_content(message.get("content"), f"{param}.content")
        characters += text
        media += others
        if others and exact_until is None:
            exact_until = index
    return exact_until, -(-characters // BYTES_PER_TOKEN) + media * MEDIA_TOKENS


def _check_content(content: object, param: str) -> tuple[int, int]:
    """Characters of text, and how many parts are no text."""
    if content is None:
        return 0, 0
    if isinstance(content, str):
        return len(content), 0
    if not isinstance(content, list):
        raise BadRequest(f"{param} must be a string or an array of parts, not {kind(content)}.", param)
    if len(content) > MAX_PARTS:
        raise BadRequest(f"{param} has {len(content)} parts; at most {MAX_PARTS} are allowed.", param)
    texts = [part_text(part, f"{param}[{index}]") for index, part in enumerate(content)]
    return sum(len(text) for text in texts if text is not None), texts.count(None)


def part_text(part: object, param: str = "content") -> str | None:
    """
    The text of a content part; None for a part that is no text.

    Raises:
        BadRequest: the part is neither a string nor an object with a type, or its text is no string.

    """
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise BadRequest(f"{param} must be an object with a type, not {kind(part)}.", param)
    field = TEXT_PARTS.get(part.get("type", "")) if isinstance(part.get("type", ""), str) else None
    if field is None:
        return None
    text = part.get(field)
    if not isinstance(text, str):
        raise BadRequest(f"{param}.{field} must be a string, not {kind(text)}.", f"{param}.{field}")
    return text


def _tools(fields: Fields) -> Sequence[Mapping[str, Any]] | None:
    tools = fields.objects("tools", limit=MAX_TOOLS)
    for index, tool in enumerate(tools or ()):
        function = tool.get("function")
        if function is not None and not isinstance(function, dict):
            raise BadRequest(f"tools[{index}].function must be an object.", f"tools[{index}].function")
    return tools
