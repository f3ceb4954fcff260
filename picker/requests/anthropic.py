"""
Anthropic's messages: blocks become chat messages as vLLM's front end makes them.

- ``system``: its texts in a row, without a separator; a billing line of the client's, new with each request, is left
  out. A system message amid the turns is placed by the engine alone: what follows is not known token by token.
- ``tool_result`` of a user becomes a message of the role ``tool`` before the user's own; pictures in it follow as a
  message of the user.
- ``thinking`` becomes reasoning, ``tool_use`` a call whose arguments are JSON, ``input_schema`` a tool's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from picker.requests.ask import Api, Ask, BadRequest, JsonObject, Unread, Unreadable
from picker.requests.content import MAX_TOOLS, checked, conversation, parts_of
from picker.requests.fields import Fields, kind
from picker.requests.openai import MOST_TOKENS, Adapters, common

BILLING = "x-anthropic-billing-header"
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "ctx": "user", "msg": "user"}
_MEDIA = frozenset({"image", "document"})


def read_messages(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/v1/messages`` or of ``/v1/messages/count_tokens``.

    Raises:
        BadRequest: a field of the wrong type, or no messages.

    """
    fields = Fields(body)
    shared: dict[str, Any] = {
        "api": Api.MESSAGES,
        "add_special_tokens": False,
        "max_tokens": fields.count("max_tokens", low=0, high=MOST_TOKENS),
        **common(fields, adapters),
    }
    try:
        messages, inline = messages_of(fields)
        tools = _tools(fields)
    except Unreadable as error:
        return Ask(unread=error.unread, estimated_tokens=0, **shared)
    effort = fields.mapping("output_config").get("effort")
    chat, tokens = conversation(fields, messages, tools=tools, effort=effort, exact_until=inline)
    return Ask(prompts=(chat,), estimated_tokens=tokens, **shared)


def messages_of(fields: Fields) -> tuple[list[dict[str, Any]], int | None]:
    """
    The conversation as chat messages, and the index of the first system message amid the turns.

    Raises:
        BadRequest: a message or block of another shape.
        Unreadable: the engine alone can render it.

    """
    messages: list[dict[str, Any]] = []
    if system := _system(fields.get("system"), "system"):
        messages.append({"role": "system", "content": system})
    inline: int | None = None
    for index, message in enumerate(checked(fields.get("messages"))):
        param = f"messages[{index}]"
        if not isinstance(message, dict):
            raise BadRequest(f"{param} must be an object, not {kind(message)}.", param)
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise BadRequest(f"{param}.role must be one of user, assistant and system.", f"{param}.role")
        if role == "system" and inline is None:
            inline = len(messages)
        _Turn(messages, _ROLES[role], param).add(message.get("content"))
    if not messages:
        raise BadRequest("messages hold no content.", "messages")
    return messages, inline


def _system(value: Any, param: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    texts = [_text(block, f"{param}[{index}]") for index, block in enumerate(parts_of(value, param))]
    return "".join(text for text in texts if not text.startswith(BILLING))


def _text(block: Any, param: str) -> str:
    """The text of a block; empty for another kind of block."""
    if not isinstance(block, dict):
        raise BadRequest(f"{param} must be an object, not {kind(block)}.", param)
    if block.get("type") != "text":
        return ""
    text = block.get("text")
    if not isinstance(text, str):
        raise BadRequest(f"{param}.text must be a string, not {kind(text)}.", f"{param}.text")
    return text


class _Turn:
    """One message of the client's, on its way into one or more messages of a chat."""

    __slots__ = ("_calls", "_messages", "_param", "_parts", "_role", "_thoughts")

    def __init__(self, messages: list[dict[str, Any]], role: str, param: str) -> None:
        self._messages = messages
        self._role = role
        self._param = f"{param}.content"
        self._parts: list[Any] = []
        self._calls: list[JsonObject] = []
        self._thoughts: list[str] = []

    def add(self, content: Any) -> None:
        """Append the messages that it makes; none where it holds nothing."""
        if isinstance(content, str):
            self._messages.append({"role": self._role, "content": content})
            return
        for index, block in enumerate(parts_of(content, self._param)):
            self._add_block(block, f"{self._param}[{index}]")
        if not (self._parts or self._calls or self._thoughts):
            return
        made: dict[str, Any] = {"role": self._role, "content": self._content()}
        if self._thoughts:
            made["reasoning"] = "".join(self._thoughts)
        if self._calls:
            made["tool_calls"] = self._calls
        self._messages.append(made)

    def _content(self) -> Any:
        if len(self._parts) == 1 and self._parts[0]["type"] == "text":
            return self._parts[0]["text"]
        return self._parts or None

    def _add_block(self, block: Any, param: str) -> None:
        text = _text(block, param)
        match block.get("type"):
            case "text":
                if text:
                    self._parts.append({"type": "text", "text": text})
            case "image" | "document":
                self._parts.append(block)
            case "thinking":
                thought = block.get("thinking")
                if not isinstance(thought, str):
                    raise BadRequest(f"{param}.thinking must be a string.", f"{param}.thinking")
                self._thoughts.append(thought)
            case "redacted_thinking":
                return
            case "tool_use":
                self._calls.append(_call(block, param))
            case "tool_result":
                self._add_result(block, param)
            case str():
                raise Unreadable(Unread.ITEMS)
            case other:
                raise BadRequest(f"{param}.type must be a string, not {kind(other)}.", f"{param}.type")

    def _add_result(self, block: JsonObject, param: str) -> None:
        content = block.get("content")
        if self._role != "user":
            raise Unreadable(Unread.ITEMS)
        if content is None or isinstance(content, str):
            text, media = content or "", []
        else:
            blocks = parts_of(content, f"{param}.content")
            texts = [_text(each, f"{param}.content[{index}]") for index, each in enumerate(blocks)]
            if not all(each.get("type") in {"text", *_MEDIA} for each in blocks):
                raise Unreadable(Unread.ITEMS)
            text = "\n".join(text for text, each in zip(texts, blocks, strict=True) if each["type"] == "text")
            media = [each for each in blocks if each["type"] in _MEDIA]
        called = block.get("tool_use_id") or block.get("id") or ""
        self._messages.append({"role": "tool", "tool_call_id": called, "content": text})
        if media:
            self._messages.append({"role": "user", "content": media})


def _call(block: JsonObject, param: str) -> JsonObject:
    name, given = block.get("name"), block.get("input")
    if not isinstance(name, str):
        raise BadRequest(f"{param}.name must be a string, not {kind(name)}.", f"{param}.name")
    if given is not None and not isinstance(given, dict):
        raise BadRequest(f"{param}.input must be an object, not {kind(given)}.", f"{param}.input")
    try:
        arguments = orjson.dumps(given or {}).decode()
    except (TypeError, ValueError):  # nested deeper than it is written
        raise Unreadable(Unread.ITEMS) from None
    return {
        "id": block.get("id") or "",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _tools(fields: Fields) -> list[JsonObject] | None:
    tools: list[JsonObject] = []
    for index, tool in enumerate(fields.objects("tools", limit=MAX_TOOLS) or ()):
        schema = tool.get("input_schema")
        if schema is None and isinstance(tool.get("type"), str) and tool["type"] != "custom":
            raise Unreadable(Unread.ITEMS)  # a tool of the server's
        if not isinstance(tool.get("name"), str):
            raise BadRequest(f"tools[{index}].name must be a string.", f"tools[{index}].name")
        if not isinstance(schema, dict):
            raise BadRequest(
                f"tools[{index}].input_schema must be an object.", f"tools[{index}].input_schema"
            )
        parameters = schema if "type" in schema else {**schema, "type": "object"}
        function = {
            "name": tool["name"],
            "description": tool.get("description"),
            "parameters": parameters,
        }
        tools.append({"type": "function", "function": function})
    return tools or None
