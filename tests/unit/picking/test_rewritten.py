"""Requests under another model: what the engine sees, what the client reads, what stays as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from picker.core.blocks import sequence_hashes
from picker.requests.rewriting import Rewrite, Rule, Rules, Target
from picker.rewriting import Hindrance
from picker.serving.seam import End, HttpRequest, Picked, Responded
from tests.unit.picking.world import A, B, World, completion

PROMPT = list(range(1, 18))
ROLLOUT = Rule("rollout[0]", frozenset({"chat"}), (Target("chat-v1", 50), Target("chat-v2", 50)))
ALIAS = Rule("alias[0]", frozenset({"m"}), (Target("engine"),))
DEFAULT = Rule("default[0]", frozenset(), (Target("base"),))
JSON = Responded(200, "10.0.0.1:8000", content_type="application/json")


def rules(world: World, *each: Rule) -> None:
    world.rules.rules = Rules.of([Rewrite("r", each)])


def shown(request: HttpRequest, **more: Any) -> HttpRequest:
    return replace(request, **{"rewritable": True, "response_shown": True, **more})


async def picked(world: World, request: HttpRequest) -> Picked:
    answer = await world.picking.decide(request)
    assert isinstance(answer, Picked), answer
    return answer


def why(world: World, answer: Picked) -> Any:
    return world.journal.why(answer.booking_id)[0]


def series(world: World) -> list[str]:
    return [line for line in world.metrics.page().decode().splitlines() if not line.startswith("#")]


async def test_the_engine_sees_the_target_and_every_other_byte_as_it_was(world: World) -> None:
    rules(world, ALIAS)
    request = shown(completion(PROMPT, temperature=0.5))
    answer = await picked(world, request)
    assert request.body is not None
    assert answer.body == request.body.replace(b'"model":"m"', b'"model":"engine"')
    decision = why(world, answer)
    assert decision["model"] == "engine"
    assert decision["model_rewrite"] == {
        "client_model": "m", "target": "engine", "rule": "alias[0]", "not_rewritten_because": None,
    }  # fmt: skip
    assert world.picking.rewriting.counts.renamed == 1
    assert 'picker_model_rewrite_decisions_total{rule="alias[0]",target_model_name="engine"} 1.0' in series(
        world
    )


async def test_a_request_without_a_rule_keeps_its_body(world: World) -> None:
    rules(world, ROLLOUT)
    answer = await picked(world, shown(completion(PROMPT)))
    assert answer.body is None
    assert why(world, answer)["model_rewrite"] is None


async def test_a_target_that_the_client_named_itself_changes_nothing(world: World) -> None:
    rules(world, Rule("r", frozenset(), (Target("m"),)))
    answer = await picked(world, shown(completion(PROMPT)))
    assert answer.body is None
    assert world.picking.rewriting.counts.same == 1


async def test_hashes_are_those_of_the_adapter_that_the_engine_will_use() -> None:
    world = World(loras=("tuned",), base_model="base")
    try:
        rules(world, Rule("r", frozenset({"m"}), (Target("tuned"),)))
        world.index.store(A, sequence_hashes(PROMPT, 4))
        world.index.store(B, sequence_hashes(PROMPT, 4, lora="tuned"))
        assert (await picked(world, shown(completion(PROMPT)))).destination == B
        assert (await picked(world, completion(PROMPT))).destination == A, (
            "left as it is, it goes where its prefix is"
        )
    finally:
        world.close()


async def test_a_missing_model_is_filled_by_the_rule_for_all(world: World) -> None:
    rules(world, DEFAULT)
    body = orjson.dumps({"prompt": PROMPT})
    answer = await picked(world, shown(HttpRequest({":path": "/v1/completions", ":method": "POST"}, body)))
    assert answer.body == b'{"model":"base",' + body[1:]
    assert answer.reading is not None
    assert not answer.reading.rewrites, "a client that named no model reads the engine's"
    assert world.picking.rewriting.counts.filled == 1


async def test_tries_of_one_request_go_to_one_model_and_requests_share_out(world: World) -> None:
    rules(world, ROLLOUT)
    targets = set()
    for number in range(20):
        request = shown(completion([number, *PROMPT], request_id=f"r{number}", model="chat"))
        first, second = await picked(world, request), await picked(world, request)
        assert first.body == second.body
        assert why(world, second)["earlier_attempts"], "a retry is known by the body that the client sent"
        targets.add(why(world, first)["model"])
    assert targets == {"chat-v1", "chat-v2"}


@pytest.mark.parametrize("name", ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"])
async def test_a_header_names_the_model_before_any_rule(world: World, name: str) -> None:
    rules(world, ALIAS)
    request = shown(completion(PROMPT))
    answer = await picked(world, replace(request, headers={**request.headers, name: "special"}))
    assert b'"model":"special"' in (answer.body or b"")
    assert why(world, answer)["model_rewrite"]["rule"] == "header"
    assert 'picker_model_rewrite_decisions_total{rule="header",target_model_name="other"} 1.0' in series(
        world
    )


async def test_a_header_that_is_no_name_is_counted_and_the_rules_are_asked(world: World) -> None:
    rules(world, ALIAS)
    request = shown(completion(PROMPT))
    answer = await picked(
        world, replace(request, headers={**request.headers, "x-llm-d-model-name-rewrite": "a\x00b"})
    )
    assert why(world, answer)["model"] == "engine"
    assert world.picking.rewriting.counts.left[Hindrance.BAD_HEADER] == 1


FORM = {
    ":path": "/v1/audio/transcriptions",
    ":method": "POST",
    "content-type": "multipart/form-data; boundary=x",
}
FORM_BODY = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n'


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (replace(completion(PROMPT), rewritable=False), "fixed"),
        (replace(completion(PROMPT), complete=False, rewritable=True), "cut"),
        (HttpRequest({":path": "/v1/completions", ":method": "POST"}, None), "hidden"),
        (
            HttpRequest(
                {**completion(PROMPT).headers, "content-encoding": "gzip"}, b"\x1f\x8b", rewritable=True
            ),
            "encoded",
        ),
        (HttpRequest(FORM, FORM_BODY, rewritable=True), "form"),
    ],
)
async def test_what_cannot_be_rewritten_goes_on_under_its_own_model_and_is_counted(
    world: World, request_: HttpRequest, reason: str
) -> None:
    rules(world, ALIAS, DEFAULT)
    answer = await picked(world, request_)
    assert answer.body is None
    assert why(world, answer)["model"] in {"", "m"}
    assert world.picking.rewriting.counts.left[reason] == 1
    assert world.picking.rewriting.counts.renamed == 0


@pytest.mark.parametrize(
    "headers", [{":path": "/v1/models", ":method": "GET"}, {":path": "/elsewhere", ":method": "POST"}]
)
async def test_requests_that_name_no_model_by_their_api_are_none_of_the_rules_business(
    world: World, headers: dict[str, str]
) -> None:
    rules(world, DEFAULT)
    answer = await picked(world, HttpRequest(headers, b'{"a":1}', rewritable=True))
    assert answer.body is None
    assert sum(world.picking.rewriting.counts.left.values()) == 0


async def test_a_header_on_a_path_whose_bodies_name_no_model_is_counted(world: World) -> None:
    headers = {":path": "/elsewhere", ":method": "POST", "x-llm-d-model-name-rewrite": "special"}
    answer = await picked(world, HttpRequest(headers, b'{"a":1}', rewritable=True))
    assert answer.body is None
    assert world.picking.rewriting.counts.left[Hindrance.PATH] == 1


async def test_the_client_reads_the_name_that_it_gave(world: World) -> None:
    rules(world, ALIAS)
    answer = await picked(world, shown(completion(PROMPT)))
    reading = answer.reading
    assert reading is not None
    assert reading.rewrites
    reading.begin(JSON)
    assert reading.piece(b'{"model":"eng', end=False) == b'{"model":"m"'
    assert reading.piece(b'ine","choices":[]}', end=True) == b',"choices":[]}'


async def test_where_the_answer_is_not_shown_the_engines_name_stays_and_is_counted(world: World) -> None:
    rules(world, ALIAS)
    answer = await picked(world, shown(completion(PROMPT), response_shown=False))
    assert answer.body is not None
    assert answer.reading is None
    assert world.picking.rewriting.counts.unrestored == 1


async def test_nothing_is_read_where_nobody_wants_to() -> None:
    world = World(read_usage=False)
    try:
        assert (await picked(world, shown(completion(PROMPT)))).reading is None
        rules(world, ALIAS)
        assert (await picked(world, shown(completion(PROMPT)))).reading is not None
    finally:
        world.close()


def usage(prompt: int, cached: int, output: int = 5) -> bytes:
    told = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return orjson.dumps({"model": "engine", "usage": told})


async def test_usage_is_told_per_model_and_held_against_the_prediction(world: World) -> None:
    rules(world, ALIAS)
    world.index.store(B, sequence_hashes(PROMPT, 4))
    answer = await picked(world, shown(completion(PROMPT)))
    assert answer.reading is not None
    answer.reading.begin(replace(JSON, served=B))
    answer.reading.piece(usage(17, 12), end=True)
    world.picking.over(answer.booking_id, End.PROVEN)
    counts = world.picking.answers.counts
    assert (counts.cached_tokens_told, counts.cached_tokens_predicted, counts.overestimated) == (12, 16, 1)
    labels = '{model_name="m",target_model_name="engine"}'
    found = series(world)
    for name, value in (("input", 17.0), ("output", 5.0), ("cached", 12.0)):
        assert f"picker_request_{name}_tokens_sum{labels} {value}" in found
    assert len(world.picking.answers) == 0


async def test_another_worker_than_the_one_picked_says_nothing_of_the_prediction(world: World) -> None:
    answer = await picked(world, shown(completion(PROMPT)))
    assert answer.reading is not None
    answer.reading.begin(replace(JSON, served="10.9.9.9:8000"))
    answer.reading.piece(usage(17, 12), end=True)
    assert world.picking.answers.counts.cached_tokens_told == 0


async def test_names_that_clients_make_up_are_no_labels(world: World) -> None:
    rules(world, DEFAULT)
    for number in range(3):
        answer = await picked(world, shown(completion([number, *PROMPT], model=f"made-up-{number}")))
        assert answer.reading is not None
        answer.reading.begin(JSON)
        answer.reading.piece(usage(17, 0), end=True)
    assert 'picker_request_input_tokens_count{model_name="other",target_model_name="base"} 3.0' in series(
        world
    )
    assert not any("made-up" in line for line in series(world))


async def test_a_stream_that_ends_early_leaves_no_reading_behind(world: World) -> None:
    answer = await picked(world, shown(completion(PROMPT)))
    assert answer.reading is not None
    answer.reading.begin(replace(JSON, content_type="text/event-stream"))
    answer.reading.piece(b"data: " + usage(17, 0) + b"\n\n", end=False)
    world.picking.over(answer.booking_id, End.CANCELLED)
    assert len(world.picking.answers) == 0
    assert world.picking.answers.counts.usage_told == 1
