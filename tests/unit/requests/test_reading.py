"""From path, headers and body to what was asked, and what a client is told that asked wrongly."""

from __future__ import annotations

import json
import tracemalloc
from array import array
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.requests.ask import Api, Ask, BadRequest, Chat, Unread
from picker.requests.reading import parse, path_of, read, suffix_of

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def ask(path: str, body: Any, **given: Any) -> Ask:
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    return read(path, {}, raw, **given)


def read_or_refuse(path: str, body: bytes) -> Ask | BadRequest:
    try:
        return read(path, {":path": path}, body)
    except BadRequest as refused:
        return refused


def chat_of(asked: Ask) -> Chat:
    (prompt,) = asked.prompts
    assert isinstance(prompt, Chat)
    return prompt


@pytest.mark.parametrize(
    ("path", "suffix"),
    [
        ("/v1/completions", "/completions"),
        ("/v1/chat/completions", "/chat/completions"),
        ("/openai/deployments/x/chat/completions?api-version=3", "/chat/completions"),
        ("/v1/chat/completions/", "/chat/completions"),
        ("/v1/chat/completions/render", "/chat/completions/render"),
        ("/v1/messages?beta=true", "/messages"),
        ("/v1/messages/count_tokens", "/messages/count_tokens"),
        ("/inference/v1/generate", "/inference/v1/generate"),
        ("/generate", "/generate"),
        ("/v1/xcompletions", None),
        ("/", None),
        ("", None),
    ],
)
def test_the_longest_known_suffix_names_the_api(path: str, suffix: str | None) -> None:
    assert suffix_of(path) == suffix


def test_a_path_hidden_by_a_proxy_is_found_in_its_headers() -> None:
    assert path_of({":path": "/a", "x-original-path": "/b"}) == "/a"
    assert path_of({"x-original-path": "/b", "x-forwarded-path": "/c"}) == "/b"
    assert path_of({"x-forwarded-path": "/c"}) == "/c"
    assert path_of({}) == "/v1/completions"


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("Hello", ("Hello",)),
        ("", ("",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], (array("I", [1, 2]),)),
        ([[1, 2], [3]], (array("I", [1, 2]), array("I", [3]))),
        ([0, 4294967295], (array("I", [0, 4294967295]),)),
    ],
)
def test_every_shape_of_prompt_is_read(prompt: Any, told: tuple[Any, ...]) -> None:
    assert ask(COMPLETIONS, {"model": "m", "prompt": prompt}).prompts == told


@pytest.mark.parametrize(
    "prompt",
    [
        None, 7, {}, [], [[]], [[1], []], ["a", 1], [1, "a"], [1, 2.0], [True], [[1], "a"], [-1], [4294967296], [[[1]]],
        [None],
    ],
)  # fmt: skip
def test_a_prompt_of_another_shape_is_the_clients_mistake(prompt: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        ask(COMPLETIONS, {"prompt": prompt})
    assert caught.value.status == 400
    assert caught.value.param is not None
    assert caught.value.param.startswith("prompt")
    assert "prompt" in caught.value.message


def test_what_steers_a_completion_is_read() -> None:
    asked = ask(
        COMPLETIONS,
        {"model": "m", "prompt": "x" * 41, "stream": True, "n": 3, "max_tokens": 9, "cache_salt": "s",
         "add_special_tokens": False},
    )  # fmt: skip
    assert (asked.api, asked.model, asked.base_model, asked.lora) == (Api.COMPLETIONS, "m", "m", "")
    assert (asked.stream, asked.n, asked.max_tokens, asked.salt) == (True, 3, 9, "s")
    assert asked.add_special_tokens is False
    assert asked.estimated_tokens == 11


def test_null_is_absent_and_numbers_may_be_written_as_text() -> None:
    asked = ask(COMPLETIONS, {"prompt": "x", "model": None, "n": None, "stream": None, "max_tokens": "16"})
    assert (asked.model, asked.n, asked.stream, asked.max_tokens) == ("", 1, False, 16)
    assert ask(COMPLETIONS, {"prompt": "x", "max_tokens": 16.0}).max_tokens == 16


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 3), ("model", "m" * 2000), ("stream", "maybe"), ("stream", []), ("n", 0), ("n", 1.5), ("n", True),
        ("n", 10**30), ("max_tokens", -1), ("max_tokens", "many"), ("max_tokens", "9" * 40), ("cache_salt", {}),
        ("add_special_tokens", 2),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_named(field: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        ask(COMPLETIONS, {"prompt": "x", field: value})
    assert caught.value.param == field
    assert field in caught.value.message


def test_a_conversation_is_kept_as_it_was_sent() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}, "there"]},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    asked = ask(CHAT, {"messages": messages, "tools": tools, "max_tokens": 5, "max_completion_tokens": 7})
    chat = chat_of(asked)
    assert asked.api is Api.CHAT
    assert list(chat.messages) == messages
    assert chat.tools == tools
    assert asked.max_tokens == 7
    assert asked.add_special_tokens is False
    assert (chat.add_generation_prompt, chat.continue_final_message) == (True, False)
    assert chat.exact_until is None


def test_a_template_of_the_client_is_ignored_and_its_arguments_are_not() -> None:
    chat = chat_of(
        ask(CHAT, {
            "messages": HELLO, "chat_template": "{{ 1 }}",
            "chat_template_kwargs": {
                "enable_thinking": False, "chat_template": "x", "messages": [], "tools": [],
                "add_generation_prompt": False,
            },
            "reasoning_effort": "low",
        })
    )  # fmt: skip
    assert chat.arguments == {
        "enable_thinking": False,
        "add_generation_prompt": False,
        "reasoning_effort": "low",
    }
    assert chat.add_generation_prompt is False


def test_a_part_that_is_no_text_ends_what_is_known() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [*HELLO, {"role": "user", "content": [{"type": "text", "text": "see"}, image]}, *HELLO]
    asked = ask(CHAT, {"messages": messages})
    assert chat_of(asked).exact_until == 1
    assert asked.estimated_tokens > 500


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("Hello", "messages"),
        (["Hello"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": 1, "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 1}], "messages[0].content"),
        ([{"role": "user", "content": {}}], "messages[0].content"),
        ([*HELLO, {"role": "user", "content": [{"type": "text", "text": 3}]}], "messages[1].content[0].text"),
        ([{"role": "user", "content": [3]}], "messages[0].content[0]"),
    ],
)
def test_a_fault_in_a_conversation_is_named_by_its_place(messages: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        ask(CHAT, {"messages": messages})
    assert caught.value.param == param


@pytest.mark.parametrize("tools", [{}, "f", ["f"], [{"function": "f"}]])
def test_tools_of_another_shape_are_the_clients_mistake(tools: Any) -> None:
    with pytest.raises(BadRequest, match="tools"):
        ask(CHAT, {"messages": HELLO, "tools": tools})


@pytest.mark.parametrize(
    "body",
    [
        b"", b"  ", b"{", b"[]", b"3", b"null", b'"x"', b"\xff\xfe", b'{"prompt": "\xff"}', b'{"prompt": NaN}',
        b"{'a': 1}",
        b'{"prompt": "\\ud800"}', b"[" * 100_000, b'{"prompt":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"prompt": "a"} x',
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_the_clients_mistake(body: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        ask(COMPLETIONS, body)
    assert caught.value.status == 400
    assert len(caught.value.message) < 400


def test_of_a_repeated_key_the_last_one_counts() -> None:
    assert ask(COMPLETIONS, b'{"prompt": "a", "prompt": "b"}').prompts == ("b",)


def test_an_adapter_is_served_by_its_base_models_tokenizer() -> None:
    asked = ask(COMPLETIONS, {"model": "poet", "prompt": "x"}, loras=("poet",), base_model="base")
    assert (asked.model, asked.lora, asked.base_model) == ("poet", "poet", "base")
    asked = ask("/v1/responses", {"model": "poet", "input": ""}, loras=("poet",), base_model="base")
    assert (asked.lora, asked.base_model) == ("poet", "base")


def test_the_model_of_an_api_without_prompts_is_still_told() -> None:
    assert ask("/v1/audio/speech", {"model": "e", "input": "x"}).model == "e"


def test_an_unknown_path_is_refused_where_that_is_set_and_a_known_one_is_not() -> None:
    with pytest.raises(BadRequest, match="/whatever"):
        read("/whatever?secret=1", {}, None, unknown_path="refuse")
    assert read("/v1/images/generations", {}, b"{}", unknown_path="refuse").api is Api.IMAGES


def test_a_body_that_is_not_shown_is_routed_by_load() -> None:
    assert read(CHAT, {}, None).unread is Unread.HIDDEN
    assert read(CHAT, {":method": "GET"}, b"").unread is Unread.HIDDEN
    cut = read(COMPLETIONS, {}, b'{"prompt": "Hel', complete=False)
    assert (cut.unread, cut.prompts, cut.api) == (Unread.CUT, (), Api.COMPLETIONS)
    assert cut.estimated_tokens == 4
    assert read(COMPLETIONS, {"content-encoding": "gzip"}, b"\x1f\x8b").unread is Unread.ENCODED
    assert read(COMPLETIONS, {"content-encoding": "identity"}, b'{"prompt": "x"}').unread is None


def test_prompts_that_only_the_engine_knows_are_routed_by_load() -> None:
    assert ask(COMPLETIONS, {"prompt_embeds": "AAAA"}).unread is Unread.EMBEDDINGS
    asked = ask(COMPLETIONS, {"prompt": "x", "truncate_prompt_tokens": 4})
    assert (asked.unread, asked.prompts) == (Unread.TRUNCATED, ())
    assert ask(CHAT, {"messages": HELLO, "truncate_prompt_tokens": 4}).unread is Unread.TRUNCATED


def test_token_ids_are_bounded() -> None:
    body = b'{"prompt": [' + b"1," * (4 * 1024 * 1024) + b"1]}"
    with pytest.raises(BadRequest, match="at most"):
        read(COMPLETIONS, {}, body)
    with pytest.raises(BadRequest, match="at most"):
        ask(COMPLETIONS, {"prompt": ["x"] * 3000})
    with pytest.raises(BadRequest, match="at most"):
        ask(CHAT, {"messages": HELLO * 10_001})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["prompt", "messages", "model", "stream", "n", "max_tokens", "tools", "documents", "chat_template_kwargs",
     "cache_salt",
     "add_generation_prompt", "continue_final_message", "reasoning_effort", "prompt_embeds", "truncate_prompt_tokens"]
)  # fmt: skip
PART = st.dictionaries(st.sampled_from(["type", "text", "image_url", "refusal"]), JSON, max_size=3) | JSON
MESSAGE = (
    st.fixed_dictionaries({"role": JSON | st.just("user"), "content": st.lists(PART, max_size=3) | JSON})
    | JSON
)


@given(
    path=st.sampled_from([COMPLETIONS, CHAT, "/v1/responses", "/x"]),
    body=st.dictionaries(FIELDS, JSON, max_size=6) | JSON,
    messages=st.lists(MESSAGE, max_size=3),
)
def test_any_json_is_read_or_refused_with_a_reason(path: str, body: Any, messages: list[Any]) -> None:
    if isinstance(body, dict):
        body = {"messages": messages, **body}
    asked = read_or_refuse(path, orjson.dumps(body))
    if isinstance(asked, Ask):
        assert asked.prompts or asked.unread is not None
        assert asked.estimated_tokens >= 0
    else:
        assert (bool(asked.message), asked.status) == (True, 400)


@given(st.binary(max_size=200), st.text(max_size=40))
def test_any_bytes_and_any_path_are_read_or_refused(body: bytes, path: str) -> None:
    for where in (path, COMPLETIONS, CHAT):
        assert read_or_refuse(where, body) is not None


@pytest.mark.parametrize(
    "piece",
    [b"[],", b"{},", b'{"a":[]},', b'"a",', b'"",', b"0,", b"[" * 800 + b"]" * 800 + b","],
    ids=["arrays", "objects", "nested", "strings", "empty strings", "numbers", "deep"],
)
@pytest.mark.parametrize("field", ["prompt", "unknown"])
def test_a_body_of_countless_values_is_refused_before_it_costs_its_multiple(piece: bytes, field: str) -> None:
    size = 16 * 1024 * 1024
    body = b'{"%s":[' % field.encode() + piece * (size // len(piece)) + b"0]}"
    tracemalloc.start()
    refused = read_or_refuse(COMPLETIONS, body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(refused, BadRequest)
    assert "too many values" in refused.message
    assert most < 3 * size


@pytest.mark.parametrize("text", ["[{", '"', "\\", '\\"[,', ',"', '{"a": [1, 2]},'])
def test_brackets_quotes_and_commas_in_a_text_are_no_values(text: str) -> None:
    long = text * (4 * 1024 * 1024 // len(text))
    assert ask(COMPLETIONS, {"prompt": long}).prompts == (long,)


def values(value: Any) -> tuple[int, int]:
    """Objects and arrays, and strings, in a JSON value."""
    match value:
        case str():
            return 0, 1
        case list():
            inner = [values(each) for each in value]
        case dict():
            inner = [values(each) for pair in value.items() for each in pair]
        case _:
            return 0, 0
    return 1 + sum(one for one, _ in inner), sum(two for _, two in inner)


TEXT = st.text(st.sampled_from('[]{}",:\\/a\n\u00e9'), max_size=8)
FEW = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, FEW, max_size=4), st.booleans())
def test_values_are_counted_as_they_are(body: dict[str, Any], ascii_only: bool) -> None:
    raw = json.dumps(body, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("picker.requests.reading.MAX_CONTAINERS", 3)
        patch.setattr("picker.requests.reading.MAX_STRINGS", 4)
        try:
            refused = parse(raw) != body
        except BadRequest as fault:
            refused = "too many values" in fault.message
    containers, strings = values(body)
    assert refused == (containers > 3 or strings > 4)


RARE = (
    "chat_template_kwargs", "reasoning_effort", "documents", "add_generation_prompt", "continue_final_message", "n",
    "best_of", "cache_salt", "priority", "tools", "truncate_prompt_tokens", "add_special_tokens",
    "max_completion_tokens",
)  # fmt: skip
CONTENTS: Any = (
    st.text(max_size=9) | st.none() | st.just([{"type": "text", "text": "x"}, "y"]) | st.just([{"type": "z"}])
)
MESSAGES: Any = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"])}, optional={"content": CONTENTS})
    | st.sampled_from([7, {}, {"role": 1}, {"role": "user", "content": 7}, {"role": "user", "content": [7]}]),
    max_size=4,
)


@given(
    body=st.fixed_dictionaries(
        {"messages": MESSAGES},
        optional={
            "model": st.sampled_from(["m", 7]),
            "stream": st.sampled_from([True, "x"]),
            "max_tokens": st.just(5),
        },
    ),
    path=st.sampled_from([CHAT, "/v1/embeddings", "/pooling", "/v1/messages", "/generate", COMPLETIONS]),
    nulls=st.sets(st.sampled_from(RARE), min_size=1),
)
def test_a_body_without_a_field_is_read_as_one_where_it_is_null(
    body: dict[str, Any], path: str, nulls: set[str]
) -> None:
    told = [read_or_refuse(path, json.dumps(each).encode()) for each in (body, body | dict.fromkeys(nulls))]
    short, long = ((str(each), each.param) if isinstance(each, BadRequest) else each for each in told)
    assert short == long
