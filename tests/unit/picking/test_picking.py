"""One request's way: who is chosen, what is booked, what is refused, what is told."""

from __future__ import annotations

import pytest

from picker.core.blocks import sequence_hashes
from picker.core.load import Load
from picker.serving.seam import End, HttpRequest, Picked, Refused
from stateplane.booking import Amount
from tests.unit.picking.world import A, B, C, World, completion

PROMPT = list(range(1, 18))  # four full blocks of four, and one token


async def picked(world: World, request: HttpRequest) -> Picked:
    answer = await world.picking.decide(request)
    assert isinstance(answer, Picked), answer
    return answer


async def refused(world: World, request: HttpRequest) -> Refused:
    answer = await world.picking.decide(request)
    assert isinstance(answer, Refused), answer
    return answer


async def test_the_worker_that_holds_the_prefix_gets_the_request(world: World) -> None:
    world.index.store(B, sequence_hashes(PROMPT, 4)[:3])
    answer = await picked(world, completion(PROMPT))
    assert answer.destination == B
    booking = world.desk.view.booking(answer.booking_id)
    assert booking is not None
    assert booking.amount == Amount(prefill_tokens=17 - 12, blocks=5, requests=1)


async def test_a_salted_request_does_not_match_the_plain_prefix(world: World) -> None:
    world.index.store(B, sequence_hashes(PROMPT, 4))
    answer = await picked(world, completion(PROMPT, cache_salt="secret"))
    decision = world.journal.why(answer.booking_id)[0]
    assert all(candidate["cached_tokens"] == 0 for candidate in decision["candidates"])


async def test_booked_load_moves_the_next_request_elsewhere(world: World) -> None:
    first = await picked(world, completion(PROMPT))
    second = await picked(world, completion(list(range(100, 117))))
    third = await picked(world, completion(list(range(200, 217))))
    assert {first.destination, second.destination, third.destination} == {A, B, C}


async def test_load_that_nobody_booked_counts(world: World) -> None:
    world.workers.loads = {A: Load(0, 50, 3), B: Load(0, 50, 3)}
    assert (await picked(world, completion(PROMPT))).destination == C


async def test_a_subset_narrows_and_may_name_hosts(world: World) -> None:
    world.index.store(B, sequence_hashes(PROMPT, 4))
    request = completion(PROMPT)
    only = HttpRequest(request.headers, request.body, subset=(A,))
    assert (await picked(world, only)).destination == A
    by_host = HttpRequest(request.headers, request.body, subset=("10.0.0.3",))
    assert (await picked(world, by_host)).destination == C


@pytest.mark.parametrize("subset", [(), ("10.9.9.9:8000",)])
async def test_a_subset_without_a_worker_of_the_pool_is_503(world: World, subset: tuple[str, ...]) -> None:
    request = completion(PROMPT)
    answer = await refused(world, HttpRequest(request.headers, request.body, subset=subset))
    assert (answer.status, answer.code, answer.reason) == (503, "no_endpoints", "rejected-no-endpoints")
    assert answer.retry_after is not None


async def test_an_empty_pool_is_503(world: World) -> None:
    world.workers.names.clear()
    assert (await refused(world, completion(PROMPT))).status == 503


async def test_full_workers_are_429_with_retry_after() -> None:
    world = World(max_worker_requests=1)
    try:
        for _ in range(3):
            await picked(world, completion(PROMPT))
        answer = await refused(world, completion(PROMPT))
    finally:
        world.close()
    assert (answer.status, answer.code) == (429, "saturated")
    assert answer.retry_after is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"model": "m"}',
        b'{"model": "m", "prompt": {"a": 1}}',
        b'{"prompt": [-1]}',
    ],
)
async def test_a_body_that_makes_no_sense_is_400_and_books_nothing(world: World, body: bytes) -> None:
    answer = await refused(world, HttpRequest({":path": "/v1/completions", ":method": "POST"}, body))
    assert (answer.status, answer.type) == (400, "invalid_request_error")
    assert not world.desk.view.bookings()


async def test_an_unknown_path_is_routed_by_load_or_refused_by_setting() -> None:
    for choice, kind in (("load", Picked), ("refuse", Refused)):
        world = World(unknown_path=choice)
        try:
            answer = await world.picking.decide(
                HttpRequest({":path": "/somewhere", ":method": "POST"}, b"whatever")
            )
        finally:
            world.close()
        assert isinstance(answer, kind)


async def test_text_without_a_tokenizer_is_routed_by_load_and_counted(world: World) -> None:
    request = HttpRequest({":path": "/v1/completions"}, b'{"model": "m", "prompt": "hello there, general"}')
    answer = await picked(world, request)
    decision = world.journal.why(answer.booking_id)[0]
    assert decision["prompt"]["tokens_unknown_because"] == "no_tokenizer"
    assert b'picker_routed_by_load_total{reason="no_tokenizer"} 1.0' in world.metrics.page()
    booking = world.desk.view.booking(answer.booking_id)
    assert booking is not None
    assert booking.amount.prefill_tokens > 0


async def test_why_tells_the_price_of_every_worker_and_nothing_of_the_body(world: World) -> None:
    world.index.store(B, sequence_hashes(PROMPT, 4))
    answer = await picked(world, completion(PROMPT, request_id="my-id"))
    [decision] = world.journal.why("my-id")
    assert decision["booking"] == answer.booking_id
    prices = {candidate["worker"]: candidate["price"] for candidate in decision["candidates"]}
    assert min(prices, key=lambda name: prices[name]) == B
    assert prices[A] == pytest.approx(17 / 4 + 5)
    assert prices[B] == pytest.approx(1 / 4 + 5)
    assert "17, 16" not in str(decision)


async def test_a_retry_shows_the_earlier_attempt_in_why(world: World) -> None:
    first = await picked(world, completion(PROMPT, request_id="again"))
    await picked(world, completion(PROMPT, request_id="again"))
    newest = world.journal.why("again")[0]
    assert [attempt["booking"] for attempt in newest["earlier_attempts"]] == [first.booking_id]


async def test_the_same_id_with_another_body_is_another_request(world: World) -> None:
    await picked(world, completion(PROMPT, request_id="reused"))
    await picked(world, completion(PROMPT[:-1], request_id="reused"))
    assert world.journal.why("reused")[0]["earlier_attempts"] == []


async def test_results_are_counted_as_the_field_counts_them(world: World) -> None:
    world.index.store(B, sequence_hashes(PROMPT, 4))
    await picked(world, completion(PROMPT))
    await picked(world, completion(list(range(500, 520))))
    await refused(world, HttpRequest({":path": "/v1/completions"}, b"{"))
    page = world.metrics.page().decode()
    for result in ("hit", "miss", "error"):
        assert f'endpoint_picker_requests_total{{result="{result}"}} 1.0' in page


async def test_fallbacks_follow_the_chosen_one() -> None:
    world = World(fallbacks=2)
    try:
        answer = await picked(world, completion(PROMPT))
    finally:
        world.close()
    assert sorted(answer.destination.split(",")) == [A, B, C]


async def test_several_prompts_count_together(world: World) -> None:
    hashes = sequence_hashes(PROMPT, 4)
    world.index.store(C, hashes)
    request = completion(PROMPT)
    both = HttpRequest(request.headers, b'{"model": "m", "prompt": [%s, %s]}' % ((str(PROMPT).encode(),) * 2))
    answer = await picked(world, both)
    assert answer.destination == C
    booking = world.desk.view.booking(answer.booking_id)
    assert booking is not None
    assert booking.amount.blocks == 10


async def test_a_prefix_just_sent_to_a_worker_draws_the_next_request_there_before_events_come() -> None:
    world = World(request_weight=0.0)
    try:
        first = await picked(world, completion(PROMPT))
        world.picking.over(first.booking_id, End.PROVEN)
        second = await picked(world, completion([*PROMPT, 900]))
        assert second.destination == first.destination
        decision = world.journal.why(second.booking_id)[0]
        cached = {one["worker"]: one["cached_tokens"] for one in decision["candidates"]}
        assert cached[first.destination] == 16
        world.picking.over(second.booking_id, End.PROVEN)
        world.clock.now += 60
        third = await picked(world, completion([*PROMPT, 901]))
        assert all(one["cached_tokens"] == 0 for one in world.journal.why(third.booking_id)[0]["candidates"])
    finally:
        world.close()


async def test_what_an_engine_only_counts_or_renders_is_booked_as_no_work(world: World) -> None:
    answer = await picked(world, completion(PROMPT, path="/v1/completions/render"))
    booking = world.desk.view.booking(answer.booking_id)
    assert booking is not None
    assert booking.amount == Amount(prefill_tokens=0, blocks=0, requests=1)
    decision = world.journal.why(answer.booking_id)[0]
    assert decision["prompt"]["tokens_unknown_because"] == "uncomputed"


async def test_several_answers_share_the_prompt_and_are_one_request(world: World) -> None:
    answer = await picked(world, completion(PROMPT, n=4))
    booking = world.desk.view.booking(answer.booking_id)
    assert booking is not None
    assert booking.amount == Amount(prefill_tokens=17, blocks=5 + 3, requests=1)


async def test_the_standing_of_a_request_is_shown_and_changes_nothing(world: World) -> None:
    request = completion(PROMPT, priority=-5)
    headers = {**request.headers, "x-llm-d-inference-objective": "chat", "x-slo-ttft-ms": "soon"}
    answer = await picked(world, HttpRequest(headers, request.body))
    standing = world.journal.why(answer.booking_id)[0]["standing"]
    assert (standing["objective"], standing["priority"]) == ("chat", -5)
    assert list(standing["ignored"]) == ["x-slo-ttft-ms"]
    plain = await picked(world, completion(PROMPT))
    assert world.journal.why(plain.booking_id)[0]["standing"] is None
