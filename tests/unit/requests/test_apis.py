"""Every API that people send: what is read of it, what goes by load and why, and what is the client's mistake."""

from __future__ import annotations

import json
import time
from array import array
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker.requests.ask import Api, Ask, BadRequest, Chat, Unread
from picker.requests.paths import FAMILIES
from picker.requests.reading import read

HELLO = [{"role": "user", "content": "Hello"}]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def ask(path: str, body: Any, **given: Any) -> Ask:
    return read(path, {":method": "POST"}, json.dumps(body).encode(), **given)


def read_or_refuse(path: str, body: bytes) -> Ask | BadRequest:
    try:
        return read(path, {":method": "POST"}, body)
    except BadRequest as refused:
        return refused


def ids(*numbers: int) -> array[int]:
    return array("I", numbers)


# what is matched

READ = [
    ("/v1/embeddings", {"input": "one"}, Api.EMBEDDINGS, ("one",)),
    ("/v1/embeddings", {"input": ["one", "two"]}, Api.EMBEDDINGS, ("one", "two")),
    ("/v1/embeddings", {"input": [1, 2]}, Api.EMBEDDINGS, (ids(1, 2),)),
    ("/v1/embeddings", {"input": [[1, 2], [3]]}, Api.EMBEDDINGS, (ids(1, 2), ids(3))),
    ("/pooling", {"input": "one"}, Api.POOLING, ("one",)),
    ("/classify", {"input": ["one", "two"]}, Api.POOLING, ("one", "two")),
    ("/inference/v1/generate", {"token_ids": [1, 2], "sampling_params": {}}, Api.GENERATE, (ids(1, 2),)),
    ("/generate", {"text": "one"}, Api.GENERATE, ("one",)),
    ("/generate", {"text": ["one", "two"]}, Api.GENERATE, ("one", "two")),
    ("/generate", {"input_ids": [1, 2]}, Api.GENERATE, (ids(1, 2),)),
    ("/generate", {"input_ids": [[1, 2], [3]], "text": None}, Api.GENERATE, (ids(1, 2), ids(3))),
    ("/generate", {"prompt": "one"}, Api.GENERATE, ("one",)),
    ("/generate", {"inputs": "one"}, Api.GENERATE, ("one",)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "api", "prompts"), READ)
def test_prompts_of_every_shape_are_read(path: str, body: Any, api: Api, prompts: Any) -> None:
    asked = ask(path, {"model": "m", "cache_salt": "s", "priority": -3, **body})
    assert (asked.api, asked.prompts, asked.unread) == (api, prompts, None)
    assert (asked.model, asked.salt, asked.priority) == ("m", "s", -3)
    assert asked.estimated_tokens >= len(prompts)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling", "/classify"])
def test_a_conversation_to_be_pooled_opens_no_turn_of_the_assistant(path: str) -> None:
    asked = ask(path, {"messages": HELLO})
    [chat] = asked.prompts
    assert isinstance(chat, Chat)
    assert (chat.add_generation_prompt, asked.add_special_tokens) == (False, False)
    assert ask(path, {"input": "x"}).add_special_tokens


# what goes by load

BY_LOAD = [
    ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, Unread.STORED),
    ("/v1/responses", {"previous_response_id": "resp_1"}, Unread.STORED),
    ("/v1/responses", {"input": "x", "conversation": "conv_1"}, Unread.STORED),
    ("/v1/responses", {"prompt": {"id": "pmpt_1"}}, Unread.STORED),
    ("/v1/responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}, Unread.STORED),
    ("/v1/responses", {"input": [{"type": "web_search_call", "id": "ws_1"}]}, Unread.ITEMS),
    ("/v1/responses", {"input": "x", "tools": [{"type": "web_search_preview"}]}, Unread.ITEMS),
    ("/v1/responses", {"input": [{"type": "reasoning", "encrypted_content": "..."}]}, Unread.ITEMS),
    ("/v1/responses", {"input": "x", "truncate_prompt_tokens": 5}, Unread.TRUNCATED),
    ("/v1/messages", {"messages": HELLO, "tools": [{"type": "web_search_20250305", "name": "web"}]}, Unread.ITEMS),
    (
        "/v1/messages",
        {"messages": [{"role": "user", "content": [{"type": "search_result", "source": "x"}]}]},
        Unread.ITEMS,
    ),
    ("/v1/embeddings", {"input": "x", "truncate_prompt_tokens": -1}, Unread.TRUNCATED),
    ("/pooling", {"data": {"any": "thing"}}, Unread.SHAPE),
    ("/generate", {"input_embeds": [[0.5]]}, Unread.EMBEDDINGS),
    ("/generate", {"text": "x", "image_data": "AAAA"}, Unread.MEDIA),
    ("/generate", {"something": "x"}, Unread.SHAPE),
    ("/inference/v1/generate", {"token_ids": [1], "features": {"mm_hashes": {"image": ["x"]}}}, Unread.MEDIA),
    ("/score", {"text_1": "x", "text_2": ["y", "z"]}, Unread.PAIRS),
    ("/v1/rerank", {"query": "x", "documents": ["y", "z"]}, Unread.PAIRS),
    ("/v1/conversations", {"items": []}, Unread.PATH),
    ("/v1/images/generations", {"prompt": "a cat"}, Unread.PATH),
    ("/v1/audio/speech", {"input": "hello"}, Unread.PATH),
    ("/whatever", {"prompt": "x"}, Unread.PATH),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "reason"), BY_LOAD)
def test_what_the_engine_alone_can_know_goes_by_load_and_says_why(
    path: str, body: Any, reason: Unread
) -> None:
    asked = ask(path, {"model": "m", **body})
    assert (asked.unread, asked.prompts) == (reason, ())
    assert asked.model == ("" if path == "/whatever" else "m")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions/render", {"prompt": "x" * 100}),
        ("/v1/chat/completions/render", {"messages": HELLO}),
        ("/v1/messages/count_tokens", {"messages": HELLO}),
        ("/tokenize", {"prompt": "x" * 100}),
        ("/detokenize", {"tokens": [1, 2]}),
    ],
)
def test_what_the_engine_only_renders_or_counts_weighs_nothing(path: str, body: Any) -> None:
    asked = ask(path, {"model": "m", "n": 4, **body})
    assert (asked.unread, asked.estimated_tokens, asked.sequences) == (Unread.UNCOMPUTED, 0, 1)
    assert asked.model == "m"


@pytest.mark.parametrize(
    "path", ["/v1/completions/render", "/v1/chat/completions/render", "/v1/messages/count_tokens"]
)
def test_what_is_only_rendered_is_checked_all_the_same(path: str) -> None:
    with pytest.raises(BadRequest):
        ask(path, {"model": "m"})


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/cancel",
        "/v1/conversations/c/items",
        "/v1/models/m",
        "/v1/models",
    ],
)
def test_what_is_stored_in_an_engine_is_known_and_goes_by_load(path: str) -> None:
    asked = read(path, {":method": "GET"}, None, unknown_path="refuse")
    assert (asked.api, asked.unread, asked.estimated_tokens) == (Api.OTHER, Unread.PATH, 0)
    deployed = "/v1/models/m/chat/completions"
    assert read(deployed, {}, json.dumps({"messages": HELLO}).encode()).api is Api.CHAT


@pytest.mark.parametrize(
    "path", ["/v1/audio/transcriptions", "/v1/images/edits", "/health", "/tokenize", "/nowhere"]
)
@pytest.mark.parametrize("body", [None, b"", b"\x00\xff", b"{", b'{"model": 3}', b"[]"])
def test_paths_without_prompts_go_by_load_whatever_their_body(path: str, body: bytes | None) -> None:
    asked = read(path, {}, body)
    assert (asked.prompts, asked.model, asked.estimated_tokens) == ((), "", 0)
    assert asked.unread is not None


def test_a_pair_is_weighed_once_for_each_document() -> None:
    one = ask("/rerank", {"query": "q" * 400, "documents": ["d" * 40]}).estimated_tokens
    ten = ask("/rerank", {"query": "q" * 400, "documents": ["d" * 40] * 10}).estimated_tokens
    assert (one, ten) == (110, 1100)


# who computes, whose cache, how many


def test_sequences_are_those_that_the_engine_will_decode() -> None:
    assert ask("/v1/completions", {"prompt": "x", "n": 2, "best_of": 5}).sequences == 5
    assert ask("/v1/completions", {"prompt": "x", "n": 2, "best_of": 1}).sequences == 2
    assert ask("/v1/completions", {"prompt": "x", "best_of": "many"}).sequences == 1
    asked = ask("/generate", {"text": "x", "sampling_params": {"n": 3, "max_new_tokens": 7}, "stream": True})
    assert (asked.n, asked.sequences, asked.max_tokens, asked.stream) == (3, 3, 7, True)
    asked = ask("/inference/v1/generate", {"token_ids": [1], "sampling_params": {"n": 3, "max_tokens": 7}})
    assert (asked.sequences, asked.max_tokens) == (3, 7)


def test_an_adapter_is_named_by_the_model_or_by_sglangs_own_field() -> None:
    given: dict[str, Any] = {"loras": ("poet",), "base_model": "base"}
    for path, body in (
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/messages", {"messages": HELLO}),
        ("/v1/responses", {"input": "x"}),
    ):
        asked = ask(path, {"model": "poet", **body}, **given)
        assert (asked.lora, asked.base_model) == ("poet", "base")
    assert ask("/generate", {"text": "x", "lora_path": "poet"}).lora == "poet"
    assert ask("/generate", {"text": ["x", "y"], "lora_path": ["poet", "poet"]}).lora == "poet"
    assert ask("/generate", {"text": ["x", "y"], "lora_path": ["poet", None]}).lora == ""
    assert ask("/generate", {"text": "x", "extra_key": "tenant"}).salt == "tenant"


# the client's mistakes

MISTAKES = [
    ("/v1/responses", {}, "input"),
    ("/v1/responses", {"input": 3}, "input"),
    ("/v1/responses", {"input": []}, "input"),
    ("/v1/responses", {"input": ["x"]}, "input[0]"),
    ("/v1/responses", {"input": "x", "instructions": 3}, "instructions"),
    ("/v1/responses", {"input": [{"content": "x"}]}, "input[0].role"),
    ("/v1/responses", {"input": [{"type": 3}]}, "input[0].type"),
    ("/v1/responses", {"input": [{"type": "function_call", "arguments": "{}"}]}, "input[0].name"),
    ("/v1/responses", {"input": [{"type": "function_call", "name": "f"}]}, "input[0].arguments"),
    ("/v1/responses", {"input": [{"type": "function_call_output", "output": 3}]}, "input[0].output"),
    ("/v1/responses", {"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
    ("/v1/responses", {"input": "x", "max_output_tokens": -1}, "max_output_tokens"),
    ("/v1/responses", {"input": "x", "reasoning": "high"}, "reasoning"),
    ("/v1/messages", {}, "messages"),
    ("/v1/messages", {"messages": []}, "messages"),
    ("/v1/messages", {"messages": [{"role": "user", "content": []}]}, "messages"),
    ("/v1/messages", {"messages": ["x"]}, "messages[0]"),
    ("/v1/messages", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ("/v1/messages", {"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ("/v1/messages", {"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ("/v1/messages", {"messages": HELLO, "system": 3}, "system"),
    ("/v1/messages", {"messages": HELLO, "system": [3]}, "system[0]"),
    ("/v1/messages", {"messages": HELLO, "tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ("/v1/messages", {"messages": HELLO, "tools": [{"input_schema": {}}]}, "tools[0].name"),
    ("/v1/messages", {"messages": HELLO, "max_tokens": "many"}, "max_tokens"),
    ("/v1/embeddings", {}, "input"),
    ("/v1/embeddings", {"input": {}}, "input"),
    ("/v1/embeddings", {"input": [1, "x"]}, "input"),
    ("/v1/embeddings", {"messages": []}, "messages"),
    ("/classify", {}, "input"),
    ("/generate", {"text": 3}, "text"),
    ("/generate", {"input_ids": ["x", 1]}, "input_ids"),
    ("/generate", {"text": "x", "sampling_params": {"n": 0}}, "n"),
    ("/inference/v1/generate", {}, "token_ids"),
    ("/inference/v1/generate", {"token_ids": "x"}, "token_ids"),
    ("/inference/v1/generate", {"token_ids": [[1], [2]]}, "token_ids"),
    ("/inference/v1/generate", {"token_ids": [1], "sampling_params": 3}, "sampling_params"),
    ("/score", {"model": 3}, "model"),
    ("/v1/completions", {"prompt": "x", "priority": "high"}, "priority"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "param"), MISTAKES)
def test_a_mistake_is_named_by_its_place(path: str, body: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        ask(path, body)
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert len(caught.value.message) < 400


# whatever is sent

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
TYPES = st.sampled_from(
    ["text", "image", "image_url", "input_text", "input_image", "input_audio", "file", "document", "thinking",
     "redacted_thinking", "tool_use", "tool_result", "message", "reasoning", "function_call", "function_call_output",
     "item_reference", "function", "custom", "output_text", "refusal"]
)  # fmt: skip
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "developer"])
NAMES = ["id", "name", "text", "input", "source", "image_url", "thinking", "arguments", "output", "call_id",
         "tool_use_id", "summary", "status", "uuid", "url", "data", "is_error", "input_schema",
         "parameters"]  # fmt: skip


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | JSON, "role": ROLES | JSON, "content": inner | st.lists(inner, max_size=3),
            **{name: JSON | st.text(max_size=5) for name in NAMES},
        },
    )  # fmt: skip


SHAPED = st.recursive(JSON | st.text(max_size=5), objects, max_leaves=8)
BODY = st.fixed_dictionaries(
    {},
    optional={
        **{
            name: SHAPED | st.lists(SHAPED, max_size=3) | st.text(max_size=5)
            for name in ("prompt", "messages", "input", "text", "input_ids", "token_ids", "system", "tools", "query")
        },
        **dict.fromkeys(
            ("model", "instructions", "previous_response_id", "reasoning", "sampling_params", "features", "n",
             "best_of", "priority", "cache_salt", "chat_template_kwargs", "output_config", "stream", "max_tokens",
             "lora_path", "extra_key", "image_data", "documents", "reasoning_effort"),
            JSON,
        ),
    },
)  # fmt: skip


@given(path=st.sampled_from([*FAMILIES, "/v1/responses/x", "/nowhere"]), body=BODY | JSON)
def test_any_json_is_read_or_refused_with_a_reason_in_bounded_time(path: str, body: Any) -> None:
    began = time.thread_time()
    asked = read_or_refuse(path, orjson.dumps(body))
    assert time.thread_time() - began < 1.0
    if isinstance(asked, Ask):
        assert bool(asked.prompts) != (asked.unread is not None)
        assert 0 <= asked.estimated_tokens < 10_000
        assert asked.sequences >= asked.n >= 1
    else:
        assert (bool(asked.message), asked.status) == (True, 400)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_an_object_nested_deeper_than_it_can_be_written_is_no_error(path: str) -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    use = {"type": "tool_use", "name": "f", "input": deep}
    call = {"type": "function_call", "name": "f", "arguments": "x", "extra": deep}
    body = {"messages": [{"role": "assistant", "content": [use]}], "input": [call]}
    asked = read(path, {}, json.dumps(body).encode())
    assert asked.unread in {None, Unread.ITEMS}


def test_a_picture_in_a_body_is_weighed_and_not_copied() -> None:
    data = "A" * (8 * 1024 * 1024)
    message = {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": data}}]}
    asked = ask("/v1/messages", {"messages": [message]})
    assert asked.estimated_tokens == 512
