"""Adapters and own criteria on the pick path: who is left out, who pays, what is told, and what it costs nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from picker.core.adapters import Held
from picker.core.criteria import Traits
from picker.core.load import Load
from picker.criteria.judging import Criteria
from picker.eligibility import Eligibility
from picker.serving.seam import HttpRequest, Picked, Refused
from tests.unit.criteria.making import Judge, Made, raising
from tests.unit.picking.test_atomic import replicas
from tests.unit.picking.world import A, B, C, Facts, World, completion

HOLDS, LACKS, RUNS = (
    Held(listed=frozenset({"sql"})),
    Held(listed=frozenset()),
    Held(running=frozenset({"sql"})),
)
IDS = [1, 2, 3, 4, 5]


@pytest.fixture
def worlds() -> Iterator[Any]:
    made: list[World] = []

    def make(**given: object) -> World:
        made.append(World(loras="sql", base_model="m", **given))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(model: str = "sql", **headers: str) -> HttpRequest:
    plain = completion(IDS, model=model)
    return HttpRequest({**plain.headers, **headers}, plain.body, subset=None)


async def pick(world: World, request: HttpRequest) -> tuple[str, Any]:
    answer = await world.picking.decide(request)
    assert isinstance(answer, Picked), answer
    return answer.destination, world.journal.why(answer.booking_id)[0]


def left_out(why: Any) -> dict[str, str]:
    return {one["worker"]: one["left_out"] for one in why["candidates"]}


def criteria(world: World, *made: tuple[str, Made]) -> Criteria:
    found = Criteria(made)
    eligibility = Eligibility(world.settings.price, known=world.facts, criteria=found)
    world.picking._eligibility = world.picking._deciding._eligibility = eligibility
    return found


# adapters


async def test_a_request_for_an_adapter_goes_to_the_worker_that_holds_it_however_loaded(worlds: Any) -> None:
    world = worlds()
    world.facts.adapters = {A: LACKS, B: HOLDS, C: LACKS}
    world.workers.loads[B] = Load(0, 5000, 50)
    for _ in range(5):
        destination, why = await pick(world, ask())
        assert destination == B
    assert left_out(why) == {A: "adapter", B: "", C: "adapter"}


async def test_other_requests_are_not_narrowed(worlds: Any) -> None:
    world = worlds()
    world.facts.adapters = {A: LACKS, B: HOLDS, C: LACKS}
    world.workers.loads[B] = Load(0, 5000, 50)
    destination, why = await pick(world, ask("m"))
    assert destination != B
    assert set(left_out(why).values()) == {""}


async def test_where_nobody_holds_it_everybody_is_asked(worlds: Any) -> None:
    world = worlds()
    world.facts.adapters = dict.fromkeys((A, B, C), LACKS)
    _, why = await pick(world, ask())
    assert set(left_out(why).values()) == {""}


async def test_where_the_holders_sleep_or_are_outside_the_subset_it_widens(worlds: Any) -> None:
    world = worlds()
    world.facts.adapters = {A: HOLDS, B: LACKS, C: LACKS}
    world.workers.names = [B, C]
    assert (await pick(world, ask()))[0] in (B, C)
    world.workers.names = [A, B, C]
    narrow = HttpRequest(ask().headers, ask().body, subset=(B, C))
    assert (await pick(world, narrow))[0] in (B, C)


async def test_where_the_holders_are_full_the_answer_is_429_and_not_a_worker_without_the_adapter(
    worlds: Any,
) -> None:
    world = worlds(max_worker_requests=1)
    world.facts.adapters = {A: HOLDS, B: LACKS, C: LACKS}
    assert (await pick(world, ask()))[0] == A
    answer = await world.picking.decide(ask())
    assert isinstance(answer, Refused)
    assert (answer.status, answer.code) == (429, "saturated")


async def test_a_worker_that_runs_the_adapter_draws_its_requests_until_the_load_outweighs_loading(
    worlds: Any,
) -> None:
    world = worlds(lora_load_blocks=64)
    world.facts.adapters = {B: RUNS}
    world.workers.loads[B] = Load(0, 60, 1)
    destination, why = await pick(world, ask())
    assert destination == B
    assert {one["worker"]: one["added"] for one in why["candidates"]} == {
        A: {"adapter": 64},
        B: {},
        C: {"adapter": 64},
    }
    world.workers.loads[B] = Load(0, 80, 1)
    assert (await pick(world, ask()))[0] in (A, C)


async def test_narrowing_can_be_switched_off(worlds: Any) -> None:
    world = worlds(lora_narrow=False)
    world.facts.adapters = {A: LACKS, B: HOLDS, C: LACKS}
    world.workers.loads[B] = Load(0, 500, 5)
    destination, why = await pick(world, ask())
    assert destination != B
    assert [one["added"] for one in why["candidates"]] == [{}, {}, {}]


async def test_fallbacks_hold_the_adapter_too(worlds: Any) -> None:
    world = worlds(fallbacks=2)
    world.facts.adapters = {A: HOLDS, B: HOLDS, C: LACKS}
    destination, _ = await pick(world, ask())
    assert set(destination.split(",")) == {A, B}


# criteria


async def test_labels_send_a_request_where_its_header_says_and_why_tells(worlds: Any) -> None:
    world = worlds(criteria="labels", label_affinity="x-zone=zone")
    world.facts.labels = {A: {"zone": "eu"}, B: {"zone": "us"}}
    world.workers.loads[B] = Load(0, 900, 9)
    destination, why = await pick(world, ask("m", **{"x-zone": "us"}))
    assert destination == B
    assert left_out(why) == {A: "labels: zone is not 'us'", B: "", C: "labels: zone is not 'us'"}
    assert (await pick(world, ask("m")))[0] != B


async def test_a_price_counts_in_blocks_and_is_told_by_name(worlds: Any) -> None:
    world = worlds(criteria="labels", label_affinity="x-zone=zone:100", fallbacks=2)
    world.facts.labels = {A: {"zone": "eu"}, B: {"zone": "us"}}
    world.workers.loads[B] = Load(0, 90, 0)
    destination, why = await pick(world, ask("m", **{"x-zone": "us"}))
    assert destination.split(",")[0] == B
    told = {one["worker"]: one for one in why["candidates"]}
    assert told[A]["added"] == {"labels": 100}
    assert told[A]["price"] == sum(told[A]["parts"].values()) + 100
    world.workers.loads[B] = Load(0, 110, 0)
    destination, _ = await pick(world, ask("m", **{"x-zone": "us"}))
    assert destination.split(",")[-1] == B, "the fallbacks follow the price"


async def test_filters_that_leave_nobody_are_503_and_name_the_criterion_but_not_its_reason(
    worlds: Any,
) -> None:
    world = worlds(criteria="labels", label_affinity="x-zone=zone")
    answer = await world.picking.decide(ask("m", **{"x-zone": "mars"}))
    assert isinstance(answer, Refused)
    assert (answer.status, answer.code, answer.reason) == (503, "no_endpoints", "rejected-no-endpoints")
    assert answer.message == "no model server may take this request: labels left out all 3"
    assert not world.desk.view.bookings()


async def test_a_criterion_that_raises_never_reaches_the_client(worlds: Any) -> None:
    world = worlds()
    found = criteria(
        world, ("broken", Made(Judge(bars=raising(RuntimeError("x"))))), ("worse", Made(ValueError()))
    )
    _, why = await pick(world, ask("m"))
    assert set(left_out(why).values()) == {""}
    assert found.counts.failed == {"broken": 1, "worse": 1}


async def test_a_criterion_is_told_of_the_request_once_and_can_change_nothing(worlds: Any) -> None:
    world = worlds()
    seen = Made(None)
    criteria(world, ("seen", seen))
    await pick(world, ask("sql", **{"x-team": "red"}))
    [traits] = seen.asked
    assert (traits.model, traits.lora, traits.base_model, traits.api) == ("sql", "sql", "m", "completions")
    assert (traits.prompt_tokens, traits.tokens_known) == (5, True)
    assert traits.headers["x-team"] == "red"
    with pytest.raises(TypeError):
        traits.headers["x-team"] = "blue"  # type: ignore[index]
    assert isinstance(traits, Traits)


async def test_criteria_leave_out_first_and_the_adapter_is_looked_for_among_the_rest(worlds: Any) -> None:
    world = worlds()
    world.facts.adapters = {A: HOLDS, B: LACKS, C: LACKS}
    criteria(world, ("not-a", Made(Judge(bars=lambda one: "no" if one.name == A else ""))))
    destination, why = await pick(world, ask())
    assert destination in (B, C)
    assert left_out(why) == {A: "not-a: no", B: "", C: ""}


# the plane chooses


async def test_a_plane_that_chooses_counts_what_criteria_add_and_takes_nobody_they_bar() -> None:
    async with replicas("ab") as (one, _):
        known = Facts(adapters={A: LACKS, B: RUNS, C: Held()})
        dear = Made(Judge(blocks=lambda worker: 40.0 if worker.name == B else -1.0))
        eligibility = Eligibility(one.settings.price, known=known, criteria=Criteria([("dear", dear)]))
        one.picking._eligibility = one.picking._deciding._eligibility = eligibility
        one.picking._adapters = ("sql",)
        answer = await one.picking.decide(completion(IDS, model="sql"))
        assert isinstance(answer, Picked)
        why = one.journal.why(answer.booking_id)[0]
        assert why["chosen"]["by"] == "plane"
        assert set(why["chosen"]["offered"]) == {B, C}
        assert answer.destination == B, (
            "40 blocks for being dear are less than 64 for loading, less the discount of 1"
        )
        added = {reason["worker"]: reason["added"] for reason in why["candidates"]}
        assert (added[B], added[C]) == ({"dear": 40.0}, {"dear": -1.0, "adapter": 64.0})
