"""A pool whose workers serve different models: requests go where their model is served, as far as that is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from discovery.found import Endpoint
from picker import settings
from picker.core.adapters import Held
from picker.core.choose import Candidate
from picker.core.load import Load
from picker.eligibility import Eligibility
from picker.pool import WorkerPool
from picker.prompts import prompt_of
from picker.requests.ask import Api, Ask
from picker.serving.seam import HttpRequest, Picked, Refused
from picker.workers.adapters import read_models
from picker.workers.registry import Registry
from tests.unit.picking.world import A, B, C, World, completion

IDS = [1, 2, 3, 4, 5]


@pytest.fixture
def worlds() -> Iterator[Any]:
    made: list[World] = []

    def make(**given: object) -> World:
        made.append(World(**given))
        return made[-1]

    yield make
    for one in made:
        one.close()


async def pick(world: World, model: str) -> tuple[str, dict[str, str]]:
    answer = await world.picking.decide(completion(IDS, model=model))
    assert isinstance(answer, Picked), answer
    (why,) = world.journal.why(answer.booking_id)
    return answer.destination, {one["worker"]: one["left_out"] for one in why["candidates"]}


async def test_a_request_goes_to_a_worker_that_serves_its_model_however_loaded(worlds: Any) -> None:
    world = worlds()
    world.facts.models = {A: {"llama"}, B: {"qwen", "qwen-latest"}, C: {"llama"}}
    world.workers.loads[B] = Load(0, 5000, 50)
    for model in ("qwen", "qwen-latest"):
        destination, left_out = await pick(world, model)
        assert destination == B
        assert left_out == {A: "model", B: "", C: "model"}
    assert (await pick(world, "llama"))[0] in (A, C)
    assert world.eligibility.counts.model_narrowed == 3


async def test_a_model_that_no_worker_serves_is_left_to_the_engines_and_counted(worlds: Any) -> None:
    world = worlds()
    world.facts.models = {A: {"llama"}, B: {"qwen"}, C: {"llama"}}
    _, left_out = await pick(world, "mistral")
    assert set(left_out.values()) == {""}
    assert world.eligibility.counts.model_unserved == 1


async def test_a_worker_that_does_not_say_is_asked_only_where_no_other_has_room(worlds: Any) -> None:
    world = worlds(max_worker_requests=1)
    world.facts.models = {A: {"llama"}, B: {"qwen"}}
    assert (await pick(world, "qwen"))[0] == B
    assert (await pick(world, "qwen"))[0] == C
    answer = await world.picking.decide(completion(IDS, model="qwen"))
    assert isinstance(answer, Refused)
    assert (answer.status, answer.code) == (429, "saturated")


async def test_a_pool_of_one_model_is_not_narrowed_whatever_a_request_names(worlds: Any) -> None:
    world = worlds()
    world.facts.models = {A: {"llama"}, B: {"llama"}, C: {"llama"}}
    _, left_out = await pick(world, "anything")
    assert set(left_out.values()) == {""}
    assert world.eligibility.counts.model_narrowed == world.eligibility.counts.model_unserved == 0


async def test_a_request_that_names_no_model_may_go_anywhere(worlds: Any) -> None:
    world = worlds()
    world.facts.models = {A: {"llama"}, B: {"qwen"}}
    answer = await world.picking.decide(HttpRequest({":path": "/unknown", ":method": "POST"}, None))
    assert isinstance(answer, Picked)


async def test_an_adapter_is_looked_for_among_the_workers_of_its_base_model(worlds: Any) -> None:
    world = worlds(loras="sql", base_model="qwen")
    world.facts.models = {A: {"llama"}, B: {"qwen"}, C: {"qwen"}}
    world.facts.adapters = dict.fromkeys((A, B), Held(listed=frozenset()))
    world.facts.adapters[C] = Held(listed=frozenset({"sql"}))
    destination, left_out = await pick(world, "sql")
    assert (destination, left_out) == (C, {A: "model", B: "adapter", C: ""})
    world.facts.adapters[C] = Held(listed=frozenset())
    destination, left_out = await pick(world, "sql")
    assert destination in (B, C)
    assert left_out == {A: "model", B: "", C: ""}


async def test_it_can_be_switched_off(worlds: Any) -> None:
    world = worlds(model_narrow=False)
    world.facts.models = {A: {"llama"}, B: {"qwen"}}
    _, left_out = await pick(world, "qwen")
    assert set(left_out.values()) == {""}


async def test_the_plane_is_offered_only_workers_that_serve_the_model(worlds: Any) -> None:
    world = worlds()
    world.facts.models = {A: {"llama"}, B: {"qwen"}, C: {"llama"}}
    deciding = world.picking._deciding
    request = completion(IDS, model="qwen")
    asked = world.picking._asked(request)
    told = world.picking._tokens.known(asked.ask)
    prompt = prompt_of(asked.ask, told, 4)
    wish = world.picking._wish(request, asked.ask, prompt, "")
    candidates, _ = deciding._candidates(wish, world.clock(), 0.0)
    assert [one.worker for one in candidates if not one.barred] == [B]


# who asked, and by which route


async def test_why_names_tenant_and_route(worlds: Any) -> None:
    world = worlds(tenant_header="X-Tenant")
    plain = completion(IDS)
    request = HttpRequest(
        {**plain.headers, "x-tenant": "gold"},
        plain.body,
        attributes={"xds.route_name": "httproute/llama/vllm/rule/0/match/0/*", "request.id": "1"},
    )
    answer = await world.picking.decide(request)
    assert isinstance(answer, Picked)
    (why,) = world.journal.why(answer.booking_id)
    assert why["tenant"] == "gold"
    assert why["route"]["object"] == "httproute llama/vllm"
    assert world.picking.tenants.status()["most"][0]["tenant"] == "gold"


async def test_why_says_of_neither_where_neither_was_told(worlds: Any) -> None:
    world = worlds()
    answer = await world.picking.decide(completion(IDS))
    assert isinstance(answer, Picked)
    (why,) = world.journal.why(answer.booking_id)
    assert (why["tenant"], why["route"]) == (None, None)


async def test_no_tenant_becomes_a_label(worlds: Any) -> None:
    world = worlds(tenant_header="x-tenant")
    plain = completion(IDS)
    await world.picking.decide(HttpRequest({**plain.headers, "x-tenant": "gold"}, plain.body))
    assert b"gold" not in world.metrics.page()


# what lists of models say, from the registry to the verdict


def test_lists_of_models_reach_the_verdict() -> None:
    given = settings.load({})
    registry = Registry()
    registry.update([Endpoint(A), Endpoint(B), Endpoint(C)])
    pool = WorkerPool(registry, given.workers, block_size=16)
    eligibility = Eligibility(given.price, known=pool)
    ask = Ask(Api.CHAT, model="qwen")
    registry.listed(A, read_models(b'{"data": [{"id": "llama"}, {"id": "llama-latest"}]}'))
    assert eligibility.model(ask) == ""
    registry.listed(B, read_models(b'{"data": [{"id": "qwen"}, {"id": "sql", "parent": "qwen"}]}'))
    assert eligibility.model(ask) == "qwen"
    assert eligibility.model(Ask(Api.CHAT, model="sql", lora="sql", base_model="qwen")) == "qwen"
    found, added = eligibility.judge("", (), [Candidate(A), Candidate(B), Candidate(C)], 0.0, model="qwen")
    assert {one.worker: one.barred for one in found} == {A: "model", B: "", C: "model"}
    assert added is None
