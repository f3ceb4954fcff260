"""
OpenAI's Responses API: items become chat messages as vLLM's front end makes them.

Instructions come first as a system message. What the assistant says, thinks and calls between two other items is one
message: text, reasoning and calls join it as long as it has none of that kind, calls always. What a call gave is a
message of the role ``tool``. Tools, flat here, are nested as chat completions have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from picker.requests.ask import Api, Ask, BadRequest, JsonObject, Unread, Unreadable
from picker.requests.content import MAX_TOOLS, check_messages, checked, conversation
from picker.requests.fields import Fields, kind
from picker.requests.openai import MOST_TOKENS, Adapters, common, truncation

_STORED = ("previous_response_id", "conversation", "prompt")
"""Fields that point to what lies in the engine."""
_OPEN = frozenset({"in_progress", "incomplete"})
"""States of a last item that is to be continued."""


def read_response(body: Mapping[str, Any], adapters: Adapters) -> Ask:
    """
    Read a body of ``/v1/responses``.

    Raises:
        BadRequest: a field of the wrong type, or no input.

    """
    fields = Fields(body)
    shared: dict[str, Any] = {
        "api": Api.RESPONSES,
        "add_special_tokens": False,
        "max_tokens": fields.count("max_output_tokens", low=0, high=MOST_TOKENS),
        **common(fields, adapters),
    }
    stored = any(fields.get(name) is not None for name in _STORED)
    if stored and fields.get("input") is None:
        return Ask(unread=Unread.STORED, **shared)
    try:
        messages, continued = messages_of(fields)
        tools = _tools(fields)
    except Unreadable as error:
        return Ask(unread=error.unread, estimated_tokens=_guess(fields), **shared)
    chat, tokens = conversation(
        fields,
        messages,
        tools=tools,
        effort=fields.mapping("reasoning").get("effort"),
        generation_prompt=not continued,
        continued=continued,
    )
    unread = Unread.STORED if stored else truncation(fields)
    return Ask(
        prompts=() if unread else (chat,),
        unread=unread,
        estimated_tokens=tokens,
        **shared,
    )


def messages_of(fields: Fields) -> tuple[list[dict[str, Any]], bool]:
    """
    The input as chat messages, and whether the last one is to be continued.

    Raises:
        BadRequest: an item of another shape.
        Unreadable: the engine alone can render it.

    """
    messages: list[dict[str, Any]] = []
    if instructions := fields.text("instructions", limit=1 << 30):
        messages.append({"role": "system", "content": instructions})
    given = fields.get("input")
    if given is None:
        raise BadRequest("input is missing: a string, or an array of items.", "input")
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}], False
    items = checked(given, "input")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise BadRequest(f"input[{index}] must be an object, not {kind(item)}.", f"input[{index}]")
        _add(messages, item, f"input[{index}]")
    last = items[-1]
    open_kind = _type(last) in {"message", "reasoning"} and isinstance(last.get("status"), str)
    return messages, open_kind and last["status"] in _OPEN


def _type(item: JsonObject) -> Any:
    return item.get("type") or "message"


def _add(messages: list[dict[str, Any]], item: dict[str, Any], param: str) -> None:
    match _type(item):
        case "message":
            _add_message(messages, item, param)
        case "function_call":
            _add_call(messages, item, param)
        case "function_call_output":
            output = item.get("output")
            if not isinstance(output, str | list):
                raise BadRequest(f"{param}.output must be a string or an array.", f"{param}.output")
            messages.append({"role": "tool", "content": output, "tool_call_id": item.get("call_id")})
        case "reasoning":
            _say(messages, "reasoning", _reasoning(item, param))
        case "item_reference":
            raise Unreadable(Unread.STORED)
        case str():
            raise Unreadable(Unread.ITEMS)
        case other:
            raise BadRequest(f"{param}.type must be a string, not {kind(other)}.", f"{param}.type")


def _add_message(messages: list[dict[str, Any]], item: dict[str, Any], param: str) -> None:
    """Of several texts of the assistant the first counts, as in vLLM."""
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str):
        raise BadRequest(f"{param}.role must be a string.", f"{param}.role")
    if role == "assistant":
        first = content[0] if isinstance(content, list) and content else content
        text = first.get("text") if isinstance(first, dict) else first
        if isinstance(text, str):
            _say(messages, "content", text)
            return
    messages.append({"role": role, "content": content})


def _say(messages: list[dict[str, Any]], field: str, text: str) -> None:
    """Let the assistant's message have it, or begin one."""
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant" and last.get(field) is None:
        last[field] = text
    else:
        messages.append({"role": "assistant", "content": None, field: text})


def _add_call(messages: list[dict[str, Any]], item: dict[str, Any], param: str) -> None:
    if item.get("namespace"):
        raise Unreadable(Unread.ITEMS)
    name, arguments = item.get("name"), item.get("arguments")
    for field, value in (("name", name), ("arguments", arguments)):
        if not isinstance(value, str):
            raise BadRequest(f"{param}.{field} must be a string, not {kind(value)}.", f"{param}.{field}")
    call = {
        "id": item.get("call_id"),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant":
        last.setdefault("tool_calls", []).append(call)
    else:
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


def _reasoning(item: JsonObject, param: str) -> str:
    if item.get("encrypted_content"):
        raise Unreadable(Unread.ITEMS)
    for field in ("content", "summary"):
        parts = item.get(field)
        if not parts:
            continue
        text = parts[0].get("text") if isinstance(parts, list) and isinstance(parts[0], dict) else None
        if not isinstance(text, str):
            raise BadRequest(f"{param}.{field} must be an array of texts.", f"{param}.{field}")
        return text
    return ""


def _tools(fields: Fields) -> list[JsonObject] | None:
    tools: list[JsonObject] = []
    for index, tool in enumerate(fields.objects("tools", limit=MAX_TOOLS) or ()):
        if tool.get("type", "function") != "function":
            raise Unreadable(Unread.ITEMS)
        if not isinstance(tool.get("name"), str):
            raise BadRequest(f"tools[{index}].name must be a string.", f"tools[{index}].name")
        function = {key: value for key, value in tool.items() if key != "type"}
        tools.append({"type": "function", "function": function})
    return tools or None


def _guess(fields: Fields) -> int:
    """Of the tokens of what was sent, as far as it can be read."""
    try:
        messages, _ = messages_of(fields)
        return check_messages(messages)[1]
    except (BadRequest, Unreadable):
        return 0
