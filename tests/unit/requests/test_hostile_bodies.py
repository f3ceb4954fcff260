"""Bodies that mean harm: nothing but `BadRequest` comes out of reading one, and in time that grows as the body does."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from picker.requests.ask import BadRequest
from picker.requests.multipart import model_of
from picker.requests.paths import FAMILIES
from picker.requests.reading import read
from picker.requests.renaming import find, renamed
from picker.requests.rewriting import Rewrite, Rule, Rules, Target
from picker.rewriting import NoRules, Rewriting
from picker.serving.seam import HttpRequest

FIELDS = (
    "add_generation_prompt", "add_special_tokens", "best_of", "cache_salt", "chat_template_kwargs", "data", "documents",
    "extra_key", "features", "image_data", "input", "input_ids", "instructions", "lora_path", "max_tokens", "messages",
    "model", "n", "output_config", "previous_response_id", "priority", "prompt", "query", "reasoning",
    "reasoning_effort", "sampling_params", "stream", "system", "text", "text_1", "token_ids", "tools",
    "truncate_prompt_tokens",
)  # fmt: skip
PLAIN = '"messages":[{"role":"user","content":"hi"}],"prompt":"hi","input":"hi","text":"hi","token_ids":[1]'

SIZE = 1_000_000
"""At this size a step of work for each pair of bytes takes hours."""
SMALL = b"".join(b'"k%d":1,' % number for number in range(4000))
BODIES: dict[str, bytes] = {
    "a model, many members, a model far behind": b'{"model":"a",' + SMALL + b'"z":"' + b"x" * SIZE + b'","model":"b"}',
    "a model, many members, a word like it": b'{"model":"a",' + SMALL + b'"z":"' + b"x" * SIZE + b'\\u006"}',
    "models": b"{" + b'"model":1,' * 9_999 + b'"x":"' + b"y" * SIZE + b'"}',
    "spelt models": b"{" + b'"\\u006dodel":1,' * 9_000 + b'"x":"' + b"\\u0061" * (SIZE // 6) + b'"}',
    "opened": b'{"a":' + b"[" * SIZE,
    "opened and closed": b'{"a":' + b"[{" * (SIZE // 4) + b"}]" * (SIZE // 4) + b"}",
    "flat lists": b'{"a":[' + b"[1]," * (SIZE // 4) + b"1]}",
    "flat lists without an end": b'{"a":' + b"[1," * (SIZE // 3),
    "members of lists": b"{" + b",".join(b'"%d":[' % one + b"[]," * 100 + b"1]" for one in range(SIZE // 310)) + b"}",
    "quotes": b'{"a":' + b'"' * SIZE,
    "escapes": b'{"a":"' + b'\\"' * (SIZE // 2) + b'"}',
    "backslashes": b'{"a":"' + b"\\" * SIZE,
    "blanks": b"{" + b" " * SIZE + b'"a"' + b" " * SIZE + b":1}",
    "commas": b'{"a":[' + b"," * SIZE,
    "one long number": b'{"a":' + b"1" * SIZE + b"}",
    "zeros": b"\0" * SIZE,
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.timeout(30)
def test_no_body_takes_longer_than_its_length_allows(body: bytes) -> None:
    with suppress(BadRequest):
        read("/v1/chat/completions", {":method": "POST"}, body)
    with suppress(BadRequest):
        read("/v1/images/generations", {":method": "POST"}, body)
    if places := find(body):
        renamed(body, places, "other")


@pytest.mark.timeout(30)
def test_no_form_takes_longer_than_its_length_allows() -> None:
    for part in (
        b"--",
        b"--b",
        b"--b\r\n",
        b'--b\r\nname="model"' + b" " * 4000,
        b"\r\n\r\n",
        b'name="model"\r\n',
    ):
        model_of("multipart/form-data; boundary=b", part * (SIZE // len(part)))
    for kind in (
        ";",
        '"',
        "boundary*0=a;",
        "boundary*9999999999=a",
        "boundary*=utf-8''%ff",
        "boundary=\ud800",
    ):
        model_of(f"multipart/form-data; {kind * (900 // len(kind))}", b"--b")


@pytest.mark.parametrize("suffix", {family.reader: suffix for suffix, family in FAMILIES.items()}.values())
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_nesting_as_deep_as_json_is_read_raises_nothing_else(suffix: str, pair: str) -> None:
    rules = Rules.of([Rewrite("r", (Rule("r", frozenset(), (Target("other"),)),))])
    rewriting = Rewriting(NoRules(rules), rng=random.Random(1))
    opening, closing = ("[", "]") if pair == "[]" else ('{"a":', "}")
    headers = {":method": "POST", ":path": f"/v1{suffix}"}
    for depth in (900, 1000, 1022):
        deep = opening * depth + "1" + closing * depth
        part = f'[{{"role":"user","content":[{{"type":"image_url","image_url":{deep}}}]}}]'
        values = [(field, value) for field in FIELDS for value in (deep, f"[{deep},{deep}]")]
        for field, value in [*values, ("messages", part), ("input", part)]:
            body = f'{{{PLAIN},"{field}":{value}}}'.encode()
            with suppress(BadRequest):
                ask = read(headers[":path"], headers, body)
                rewriting.apply(HttpRequest(headers=headers, body=body, rewritable=True), ask, "")


def test_a_byte_order_mark_before_a_body_is_overlooked_as_engines_do() -> None:
    body = b'\xef\xbb\xbf {"model":"a","prompt":"hi"}'
    assert read("/v1/completions", {":method": "POST"}, body).model == "a"
    places = find(body)
    assert places is not None
    assert renamed(body, places, "b") == b'\xef\xbb\xbf {"model":"b","prompt":"hi"}'
