"""Blocks and items as chat messages, the way engines' front ends make them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from picker.requests.ask import Ask, Chat
from picker.requests.reading import read

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def asked(path: str, **body: Any) -> Ask:
    return read(path, {}, json.dumps(body).encode())


def chat(path: str, **body: Any) -> Chat:
    [prompt] = asked(path, **body).prompts
    assert isinstance(prompt, Chat)
    return prompt


def blocks(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}

ANTHROPIC = {
    "a string": ([{"role": "user", "content": "x"}], [{"role": "user", "content": "x"}]),
    "one text": ([blocks(text("x"))], [{"role": "user", "content": "x"}]),
    "several texts": ([blocks(text("x"), text("y"))], [{"role": "user", "content": [text("x"), text("y")]}]),
    "a picture": ([blocks(text("x"), IMAGE)], [{"role": "user", "content": [text("x"), IMAGE]}]),
    "thinking and a call": (
        [blocks({"type": "thinking", "thinking": "hm", "signature": "s"}, text("x"), USE, role="assistant")],
        [{"role": "assistant", "content": "x", "reasoning": "hm", "tool_calls": [CALL]}],
    ),
    "a call alone": ([blocks(USE, role="assistant")], [{"role": "assistant", "content": None, "tool_calls": [CALL]}]),
    "results before the user's own words": (
        [
            blocks(
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("a"), text("b")]},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": True},
                text("x"),
            )
        ],
        [
            {"role": "tool", "tool_call_id": "c1", "content": "a\nb"},
            {"role": "tool", "tool_call_id": "c2", "content": ""},
            {"role": "user", "content": "x"},
        ],
    ),
    "a picture among the results": (
        [blocks({"type": "tool_result", "tool_use_id": "c1", "content": [text("a"), IMAGE]})],
        [{"role": "tool", "tool_call_id": "c1", "content": "a"}, {"role": "user", "content": [IMAGE]}],
    ),
    "nothing at all between others": (
        [{"role": "user", "content": "x"}, blocks(), blocks({"type": "redacted_thinking", "data": "?"})],
        [{"role": "user", "content": "x"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ANTHROPIC)
def test_blocks_become_messages(case: str) -> None:
    given, wanted = ANTHROPIC[case]
    assert list(chat("/v1/messages", messages=given).messages) == wanted


def test_the_systems_texts_stand_in_a_row_without_the_billing_line() -> None:
    billing = text("x-anthropic-billing-header: cch=123;")
    made = chat("/v1/messages", messages=[blocks(text("x"))], system=[billing, text("Be "), text("brief.")])
    assert made.messages[0] == {"role": "system", "content": "Be brief."}
    assert chat("/v1/messages", messages=[blocks(text("x"))], system="s").messages[0]["content"] == "s"
    assert len(chat("/v1/messages", messages=[blocks(text("x"))], system="").messages) == 1


def test_a_system_message_amid_the_turns_ends_what_is_known_token_by_token() -> None:
    turns = [
        {"role": "user", "content": "x"},
        {"role": "system", "content": "y"},
        {"role": "user", "content": "z"},
    ]
    made = chat("/v1/messages", messages=turns, system="s")
    assert made.exact_until == 2
    assert [message["role"] for message in made.messages] == ["system", "user", "system", "user"]


def test_a_picture_ends_what_is_known_wherever_it_stands() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [IMAGE]}
    assert chat("/v1/messages", messages=[blocks(text("x")), blocks(result)]).exact_until == 2
    items = [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}
    ]
    assert chat("/v1/responses", input=items, instructions="s").exact_until == 1


def test_anthropics_tools_have_an_object_as_schema() -> None:
    tools = [{"name": "f", "description": "d", "input_schema": {"properties": {}}, "cache_control": {}}]
    made = chat("/v1/messages", messages=[blocks(text("x"))], tools=tools)
    assert made.tools == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "parameters": {"properties": {}, "type": "object"}},
        }
    ]


def test_efforts_reach_the_template() -> None:
    made = chat("/v1/messages", messages=[blocks(text("x"))], output_config={"effort": "low"})
    assert made.arguments == {"reasoning_effort": "low"}
    made = chat("/v1/responses", input="x", reasoning={"effort": "high"}, chat_template_kwargs={"a": 1})
    assert made.arguments == {"a": 1, "reasoning_effort": "high"}


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
FUNCTION = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}

RESPONSES = {
    "a string": ("x", [{"role": "user", "content": "x"}]),
    "messages": (
        [{"role": "developer", "content": "x"}, {"role": "user", "content": [{"type": "input_text", "text": "y"}]}],
        [{"role": "developer", "content": "x"}, {"role": "user", "content": [{"type": "input_text", "text": "y"}]}],
    ),
    "what the assistant thought, said and called": (
        [THOUGHT, SAID, FUNCTION, {**FUNCTION, "call_id": "c2"}],
        [{"role": "assistant", "content": "a", "reasoning": "hm", "tool_calls": [CALL, {**CALL, "id": "c2"}]}],
    ),
    "said twice": ([SAID, SAID], [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "a"}]),
    "called and answered": (
        [FUNCTION, {"type": "function_call_output", "call_id": "c1", "output": "21"}, SAID],
        [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "21", "tool_call_id": "c1"},
            {"role": "assistant", "content": "a"},
        ],
    ),
    "a summary where there is no more": (
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}],
        [{"role": "assistant", "content": None, "reasoning": "s"}],
    ),
    "an assistant's plain words": (
        [{"role": "assistant", "content": "a"}, {"role": "user", "content": "x"}],
        [{"role": "assistant", "content": "a"}, {"role": "user", "content": "x"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RESPONSES)
def test_items_become_messages(case: str) -> None:
    given, wanted = RESPONSES[case]
    assert list(chat("/v1/responses", input=given).messages) == wanted


def test_an_item_in_progress_is_continued() -> None:
    made = chat("/v1/responses", input=[{"role": "user", "content": "x"}, {**SAID, "status": "in_progress"}])
    assert (made.add_generation_prompt, made.continue_final_message) == (False, True)
    made = chat("/v1/responses", input=[{**SAID, "status": "in_progress"}, {"role": "user", "content": "x"}])
    assert (made.add_generation_prompt, made.continue_final_message) == (True, False)


def test_flat_tools_are_nested() -> None:
    made = chat(
        "/v1/responses",
        input="x",
        tools=[{"type": "function", "name": "f", "parameters": {}, "strict": True}],
    )
    assert made.tools == [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}]


def test_what_steers_an_answer_is_read() -> None:
    one = asked("/v1/responses", input="x", model="m", max_output_tokens=7, stream=True, cache_salt="s")
    assert (one.model, one.max_tokens, one.stream, one.salt, one.add_special_tokens) == (
        "m",
        7,
        True,
        "s",
        False,
    )
    two = asked("/v1/messages", messages=[blocks(text("x"))], model="m", max_tokens=7, stream=True)
    assert (two.model, two.max_tokens, two.stream, two.add_special_tokens) == ("m", 7, True, False)
