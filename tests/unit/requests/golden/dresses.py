"""Chats in the dress of other APIs: the same conversation as Anthropic's messages, and as items of a response."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.requests.golden.cases import Body

DRESSED = (
    "one turn",
    "a system's words",
    "several turns, thoughts of earlier ones among them",
    "awkward text at every edge",
    "tools",
    "calls of tools and their answers",
    "calls of tools, then a question",
    "reasoning in its own field",
    "reasoning in the turn under way",
    "thinking switched off",
    "a long conversation",
)
"""Chats that both other APIs can say."""


def as_messages(body: Body) -> Body:
    """As a client of Anthropic's sends it: the system apart, in blocks; results of calls among the user's words."""
    system = [message["content"] for message in body["messages"] if message["role"] == "system"]
    made: list[Body] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            block = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": message["content"],
            }
            if made[-1]["role"] != "user":
                made.append({"role": "user", "content": []})
            made[-1]["content"].append(block)
        elif message["role"] == "user" and made and made[-1]["role"] == "user":
            made[-1]["content"].append({"type": "text", "text": message["content"]})
        elif message["role"] != "system":
            made.append({"role": message["role"], "content": _blocks(message)})
    whole: Body = {"messages": made, "max_tokens": 16}
    if system:
        halves = system[0][: len(system[0]) // 2], system[0][len(system[0]) // 2 :]
        whole["system"] = [{"type": "text", "text": half} for half in halves]
    if tools := body.get("tools"):
        functions = [tool["function"] for tool in tools]
        whole["tools"] = [
            {"input_schema": each["parameters"], "name": each["name"], "description": each["description"]}
            for each in functions
        ]
    return whole | {name: body[name] for name in ("chat_template_kwargs",) if name in body}


def _blocks(message: Body) -> list[Body]:
    blocks: list[Body] = []
    if reasoning := message.get("reasoning"):
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": "x"})
    if message["content"]:
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls", ()):
        function = call["function"]
        given = json.loads(function["arguments"] or "{}")
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": given})
    return blocks


def as_response(body: Body) -> Body:
    """As a client of the Responses API sends it: the system as instructions, everything else as items."""
    messages = body["messages"]
    whole: Body = {"input": []}
    if messages[0]["role"] == "system":
        whole["instructions"], messages = messages[0]["content"], messages[1:]
    for message in messages:
        whole["input"] += _items(message)
    if tools := body.get("tools"):
        whole["tools"] = [{"type": "function", **tool["function"]} for tool in tools]
    return whole | {name: body[name] for name in ("chat_template_kwargs",) if name in body}


def _items(message: Body) -> list[Any]:
    if message["role"] == "tool":
        return [
            {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        ]
    if message["role"] != "assistant":
        return [{"role": message["role"], "content": [{"type": "input_text", "text": message["content"]}]}]
    items: list[Any] = []
    if reasoning := message.get("reasoning"):
        items.append(
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": reasoning}]}
        )
    if message["content"]:
        said = [{"type": "output_text", "text": message["content"], "annotations": []}]
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": said})
    for call in message.get("tool_calls", ()):
        function = call["function"]
        items.append({"type": "function_call", "call_id": call["id"], "status": "completed", **function})
    return items
