"""A view that is behind: foreign load moves toward its mean, own load counts as it is."""

from __future__ import annotations

from collections import Counter

import pytest

from picker.serving.seam import Picked
from stateplane.booking import Amount, Booking, Owner
from tests.unit.picking.world import A, B, C, World, completion

PROMPT = list(range(1, 18))
OTHER = Owner("other", "1")


def foreign(world: World, **blocks: int) -> None:
    """Bookings of another replica, as the view has them."""
    names = {"a": A, "b": B, "c": C}
    for name, held in blocks.items():
        world.desk.view.lay(
            Booking(f"foreign-{name}", "", names[name], OTHER, Amount(0, held)), world.clock.now
        )


async def why(world: World) -> dict[str, dict[str, object]]:
    answer = await world.picking.decide(completion(PROMPT))
    assert isinstance(answer, Picked)
    decision = world.journal.why(answer.booking_id)[0]
    return {candidate["worker"]: candidate["booked"] for candidate in decision["candidates"]}


async def test_a_level_view_is_taken_as_it_is(world: World) -> None:
    foreign(world, a=30, b=60)
    booked = await why(world)
    assert [booked[name]["blocks"] for name in (A, B, C)] == [30, 60, 0]
    assert world.picking.counts.aged == 0


async def test_what_others_placed_moves_halfway_to_its_mean_at_one_unseen_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign(world, a=30, b=60)
    world.desk.book("own", key="", worker=C, amount=Amount(8, 12), now=world.clock.now)
    monkeypatch.setattr(world.desk, "unseen", lambda _: 1.0)
    booked = await why(world)
    assert [booked[name]["blocks"] for name in (A, B, C)] == [30, 45, 15 + 12]
    assert booked[C] == {"prefill_tokens": 8, "blocks": 27, "requests": 1 + 1 / 3}
    assert world.picking.counts.aged == 1


async def test_a_view_that_is_far_behind_no_longer_draws_everybody_to_its_old_minimum(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign(world, a=900, b=900, c=0)
    monkeypatch.setattr(world.desk, "unseen", lambda _: 1e6)
    seen = Counter[str]()
    for _ in range(30):
        answer = await world.picking.decide(completion(PROMPT))
        assert isinstance(answer, Picked)
        seen[answer.destination] += 1
    assert seen == {A: 10, B: 10, C: 10}


async def test_a_subset_takes_its_share_of_the_whole_pool_s_mean(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign(world, a=30, b=60)
    monkeypatch.setattr(world.desk, "unseen", lambda _: 1e12)
    request = completion(PROMPT)
    answer = await world.picking.decide(type(request)(request.headers, request.body, subset=(A,)))
    assert isinstance(answer, Picked)
    [candidate] = world.journal.why(answer.booking_id)[0]["candidates"]
    assert candidate["booked"]["blocks"] == pytest.approx(30.0)
