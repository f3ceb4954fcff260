"""Messages and their parts, as the chat APIs share them: what is text, what is not, and whether the shape is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from picker.requests.ask import BYTES_PER_TOKEN, BadRequest, Chat, JsonObject
from picker.requests.fields import Fields, kind

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

STEERING = frozenset(
    {
        "chat_template_kwargs", "reasoning_effort", "documents", "add_generation_prompt", "continue_final_message",
    }
)  # fmt: skip
"""Fields by which a body tells the template more than the conversation; most bodies have none of them."""
_OWN = frozenset({"messages", "conversation", "tools", "documents", "chat_template", "tokenize"})
"""Template arguments that would replace the conversation or the operator's template."""


def conversation(
    fields: Fields,
    messages: Sequence[JsonObject],
    *,
    tools: Sequence[JsonObject] | None = None,
    effort: Any = None,
    generation_prompt: bool = True,
    continued: bool = False,
    exact_until: int | None = None,
) -> tuple[Chat, int]:
    """
    A conversation out of messages that `checked` let pass, and a guess of its tokens.

    Args:
        fields: The body, for what it says to the template.
        messages: In OpenAI's shape.
        tools: In the shape of chat completions.
        effort: How much the model is to reason, where that stands elsewhere than in ``reasoning_effort``.
        generation_prompt: Whether the assistant's turn is opened, where the body does not say.
        continued: Whether the last message is left open, where the body does not say.
        exact_until: A message that the engine alone can render, beside those with media.

    Raises:
        BadRequest: a field of the wrong type.

    """
    first, tokens = check_messages(messages)
    if exact_until is not None:
        first = exact_until if first is None else min(first, exact_until)
    if effort is None and fields.lacks(STEERING):
        return Chat(messages, tools, None, {}, generation_prompt, continued, first), tokens
    arguments = {
        key: value for key, value in fields.mapping("chat_template_kwargs").items() if key not in _OWN
    }
    effort = fields.get("reasoning_effort") if effort is None else effort
    if effort is not None:
        arguments.setdefault("reasoning_effort", effort)

    def switch(name: str, default: bool) -> bool:
        if not arguments:
            return fields.flag(name, default=default)
        return Fields(arguments).flag(name, default=fields.flag(name, default=default))

    chat = Chat(
        messages=messages,
        tools=tools,
        documents=fields.objects("documents", limit=MAX_TOOLS),
        add_generation_prompt=switch("add_generation_prompt", generation_prompt),
        continue_final_message=switch("continue_final_message", continued),
        arguments=arguments,
        exact_until=first,
    )
    return chat, tokens


def checked(value: Any, name: str = "messages") -> list[Any]:
    """
    A list of messages, of a bearable length; the messages are not looked at.

    Raises:
        BadRequest: it is none.

    """
    if not isinstance(value, list) or not value:
        raise BadRequest(f"{name} must be a non-empty array of objects.", name)
    if len(value) > MAX_MESSAGES:
        raise BadRequest(f"{name} has {len(value)} entries; at most {MAX_MESSAGES} are allowed.", name)
    return value


def check_messages(messages: Sequence[object]) -> tuple[int | None, int]:
    """
    Check roles and contents; the first message that is not text throughout, and a guess of the tokens.

    Raises:
        BadRequest: a message or part of another shape.

    """
    exact_until: int | None = None
    characters = media = 0
    for index, message in enumerate(messages):
        if type(message) is dict and type(message.get("role")) is str:
            content = message.get("content")
            if type(content) is str:
                characters += len(content)
                continue
        text, others = _check_message(message, f"messages[{index}]")
        characters += text
        media += others
        if others and exact_until is None:
            exact_until = index
    return exact_until, -(-characters // BYTES_PER_TOKEN) + media * MEDIA_TOKENS


def _check_message(message: object, param: str) -> tuple[int, int]:
    """Characters of text, and how many parts are no text."""
    if not isinstance(message, dict):
        raise BadRequest(f"{param} must be an object, not {kind(message)}.", param)
    if not isinstance(message.get("role"), str):
        raise BadRequest(f"{param}.role must be a string.", f"{param}.role")
    content, param = message.get("content"), f"{param}.content"
    if content is None:
        return 0, 0
    if isinstance(content, str):
        return len(content), 0
    characters = others = 0
    for index, part in enumerate(parts_of(content, param)):
        text: object = part.get("text") if type(part) is dict and part.get("type") == "text" else None
        if type(text) is not str:
            text = part_text(part, f"{param}[{index}]")
            if text is None:
                others += 1
                continue
        characters += len(text)
    return characters, others


def parts_of(content: object, param: str) -> list[Any]:
    """
    The parts of a content that is no string.

    Raises:
        BadRequest: it is no array, or a very long one.

    """
    if not isinstance(content, list):
        raise BadRequest(f"{param} must be a string or an array of parts, not {kind(content)}.", param)
    if len(content) > MAX_PARTS:
        raise BadRequest(f"{param} has {len(content)} parts; at most {MAX_PARTS} are allowed.", param)
    return content


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


def tools_of(fields: Fields) -> Sequence[JsonObject] | None:
    """
    The tools of a body in the shape of chat completions.

    Raises:
        BadRequest: they are none.

    """
    tools = fields.objects("tools", limit=MAX_TOOLS)
    for index, tool in enumerate(tools or ()):
        function = tool.get("function")
        if function is not None and not isinstance(function, dict):
            raise BadRequest(f"tools[{index}].function must be an object.", f"tools[{index}].function")
    return tools
