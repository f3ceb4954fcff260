"""The line-up that is kept from pick to pick is the one that would be made anew, whatever happens between."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from picker.core.blocks import sequence_hashes
from picker.core.choose import AllFull, Candidate, Choice, NoWorker, choose
from picker.core.cost import Demand, Weights
from picker.core.index import PrefixIndex
from picker.core.load import NO_LOAD, Load
from picker.core.match import Overlap
from picker.core.predicted import Predicted
from picker.survey import Survey
from stateplane.booking import Amount, Cause, Owner, Rules
from stateplane.desk import Desk
from stateplane.memory import MemoryPlane, MemoryStore
from tests.unit.core.reach import reach

WORKERS = tuple(f"10.0.0.{n}:8000" for n in range(5))


class Told:
    """A pool that tells of changes, once."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = WORKERS[:3]
        self.loads: dict[str, Load] = {}
        self.fresh: set[str] = set()

    def routable(self, now: float) -> Sequence[str]:
        return self.names

    def unbooked(self, worker: str, now: float) -> Load:
        return self.loads.get(worker, NO_LOAD)

    def changed(self, now: float) -> Sequence[str]:
        fresh, self.fresh = self.fresh, set()
        return tuple(fresh)


class Place:
    """A survey, and everything that changes under it."""

    def __init__(self, weights: Weights | None = None, limit: int = 0) -> None:
        self.now, self.pool, self.index = 1000.0, Told(), PrefixIndex()
        self.weights, self.limit = Weights() if weights is None else weights, limit
        for worker in self.pool.names:
            self.index.add(worker)
        owner, rules = Owner("r", "1"), Rules()
        plane = MemoryPlane(MemoryStore(rules, clock=lambda: self.now), owner=owner)
        self.desk = Desk(plane, owner, mode="isolated", clock=lambda: self.now)
        self.predicted, self.booked = Predicted(life=5), list[str]()
        self.survey = self.made()

    def made(self) -> Survey:
        return Survey(
            pool=self.pool, index=self.index, predicted=self.predicted, tails=None, view=self.desk.view,
            weights=self.weights, block_size=1, limit=self.limit,
        )  # fmt: skip

    def change(self, rng: random.Random, prompt: list[int]) -> None:
        worker = rng.choice(WORKERS)
        match rng.randrange(10):
            case 0:
                self.index.store(worker, prompt)
            case 1:
                self.index.clear(worker)
            case 2:
                booking = self.desk.new_id()
                self.desk.book(
                    booking, key="", worker=worker, amount=Amount(rng.randrange(9), 3), now=self.now
                )
                self.booked.append(booking)
            case 3 if self.booked:
                self.desk.end(self.booked.pop(0), Cause.ENDED)
            case 4:
                self.pool.loads[worker] = Load(0, rng.randrange(3), 1)
                self.pool.fresh.add(worker)
            case 5:
                self.predicted.note(worker, prompt, self.now)
                self.now += rng.choice([0.0, 1.0, 3.0])
            case 6 if rng.random() < 0.5:
                self.pool.names = tuple(one for one in WORKERS if rng.random() < 0.7)
            case 7 if rng.random() < 0.5:
                (self.index.drop if rng.random() < 0.5 else self.index.add)(worker)
            case 8:
                self.index.sweep(rng.randrange(20))
                self.predicted.expire(self.now)
            case 9 if rng.random() < 0.3:
                self.predicted.left(worker)

    def candidates(self, prompt: list[int]) -> list[Candidate]:
        """The workers in the order of their seats, each looked at alone."""
        names, match, view = self.pool.names, self.index.match(prompt), self.desk.view
        found = []
        for _, name in sorted(zip(self.index.seats(names), names, strict=True)):
            held = reach(
                self.predicted, self.index, name, prompt, held=match.overlap(name).total, now=self.now
            )
            booked = view.load(name)
            load = Load(booked.prefill_tokens, booked.blocks, booked.requests)
            found.append(Candidate(name, load, self.pool.unbooked(name, self.now), Overlap(held), self.limit))
        return found


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_what_is_kept_is_what_would_be_found_anew(seed: int, steps: int) -> None:
    rng, place = random.Random(seed), Place()
    for _ in range(steps):
        prompt = sequence_hashes([rng.randrange(2) for _ in range(rng.randrange(1, 6))], 1)
        place.change(rng, prompt)
        lineup = place.survey.lineup(place.now)
        held = place.survey.overlaps([prompt], (), lineup, place.now)
        match = place.index.match(prompt)
        wanted = {}
        for name in place.pool.names:
            had = match.overlap(name).total
            if total := reach(place.predicted, place.index, name, prompt, held=had, now=place.now):
                wanted[name] = Overlap(total)
        assert held == wanted
        view = place.desk.view
        assert [(one.worker, *one.booked, *one.unbooked) for one in lineup.weigh(held)] == [
            (
                name,
                view.load(name).prefill_tokens,
                view.load(name).blocks,
                view.load(name).requests,
                *place.pool.unbooked(name, place.now),
            )
            for name in place.pool.names
        ]


@given(
    st.integers(0, 2**32),
    st.integers(1, 60),
    st.builds(
        Weights,
        overlap_credit=st.sampled_from([0.0, 0.5, 1.0]),
        request_weight=st.sampled_from([0.0, 0.3]),
        temperature=st.sampled_from([0.0, 0.0, 0.7]),
    ),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 0, 2]),
)
def test_the_choice_is_that_among_workers_looked_at_anew_and_is_explained_so_ever_after(
    seed: int, steps: int, weights: Weights, limit: int, fallbacks: int
) -> None:
    rng, place = random.Random(seed), Place(weights, limit)
    picks: list[tuple[Choice | NoWorker | AllFull, Choice | NoWorker | AllFull]] = []
    for _ in range(steps):
        prompt = sequence_hashes([rng.randrange(2) for _ in range(rng.randrange(1, 6))], 1)
        place.change(rng, prompt)
        lineup, demand = place.survey.lineup(place.now), Demand(len(prompt) + 1, len(prompt) + 1, 1)
        ours, theirs = random.Random(seed), random.Random(seed)
        found = lineup.choose(demand, place.survey.shares(prompt, place.now), ours, fallbacks)
        wanted = choose(place.candidates(prompt), demand, weights, theirs, fallbacks)
        assert type(found) is type(wanted)
        assert ours.getstate() == theirs.getstate()
        if isinstance(found, Choice) and isinstance(wanted, Choice):
            assert (found.chosen, found.fallbacks) == (wanted.chosen, wanted.fallbacks)
        picks.append((found, wanted))
    for found, wanted in picks:
        assert found.reasons == wanted.reasons
        assert found.left_out == wanted.left_out
