from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from picker.sim.engine.blocks import BlockPool, CacheEvent, Cleared, Removed, Stored
from picker.sim.engine.scheduler import Pace, Scheduler, Sequence

PACE = Pace(max_sequences=4, max_batched_tokens=32, prefill_seconds_per_token=0.001, decode_seconds=0.01)


def scheduler(*, blocks: int = 32, block_size: int = 4, pace: Pace = PACE) -> Scheduler:
    return Scheduler(BlockPool(blocks, block_size), pace)


def ask(prompt: list[int], answer: int = 1, *, lora: str = "", salt: str = "") -> Sequence:
    said = [(sum(prompt) + at) % 7 + 1000 for at in range(answer)]
    return Sequence("r", prompt, said, "length", lora, salt)


def run(engine: Scheduler, *asked: Sequence) -> None:
    for each in asked:
        engine.add(each, 0.0)
    while step := engine.plan(0.0):
        engine.complete(step, 0.0)


def fold(events: list[CacheEvent], held: Counter[bytes]) -> None:
    """What a listener that counts copies believes."""
    for event in events:
        if isinstance(event, Stored):
            held.update(event.hashes)
        elif isinstance(event, Removed):
            held[event.block] -= 1
            assert held[event.block] >= 0
        elif isinstance(event, Cleared):
            held.clear()
        else:
            raise TypeError(event)


def truth(engine: Scheduler) -> Counter[bytes]:
    return Counter({block: copies for block, _, copies in engine.pool.resident()})


def test_a_repeated_prompt_finds_its_full_blocks() -> None:
    engine = scheduler()
    first, again = ask(list(range(10))), ask(list(range(10)))
    run(engine, first)
    run(engine, again)
    assert (first.cached, again.cached) == (0, 8)


def test_the_last_token_is_always_computed() -> None:
    engine = scheduler()
    first, again = ask(list(range(8))), ask(list(range(8)))
    run(engine, first)
    run(engine, again)
    assert again.cached == 4


def test_a_block_computed_twice_is_announced_twice_and_withdrawn_twice() -> None:
    engine = scheduler(blocks=3)
    run(engine, ask(list(range(8))))
    run(engine, ask(list(range(8))))
    held: Counter[bytes] = Counter()
    fold(engine.pool.take_events(), held)
    assert sorted(held.values()) == [1, 2]
    run(engine, ask(list(range(50, 62))))
    events = engine.pool.take_events()
    assert sum(isinstance(event, Removed) for event in events) == 3
    fold(events, held)
    assert +held == truth(engine)


def test_other_tokens_adapters_and_salts_share_nothing() -> None:
    engine = scheduler()
    prompt = list(range(9))
    run(engine, ask(prompt))
    for other in (
        ask([99, *prompt[1:]]),
        ask(prompt, lora="a"),
        ask(prompt, salt="s"),
        ask(prompt, lora="b"),
    ):
        run(engine, other)
        assert other.cached == 0
    for again in (ask(prompt, lora="a"), ask(prompt, salt="s")):
        run(engine, again)
        assert again.cached == 8


def test_the_least_recently_used_prompt_is_evicted_and_its_tail_first() -> None:
    engine = scheduler(blocks=6)
    old, young = list(range(100, 109)), list(range(200, 209))
    run(engine, ask(old))
    run(engine, ask(young))
    run(engine, ask(old))
    run(engine, ask(list(range(300, 313))))
    kept = ask(old)
    assert len(engine.hits(_arrived(engine, kept))) == 2
    assert len(engine.hits(_arrived(engine, ask(young)))) == 0
    run(engine, ask(list(range(400, 405))))
    assert len(engine.hits(_arrived(engine, ask(old)))) == 1


def _arrived(engine: Scheduler, sequence: Sequence) -> Sequence:
    sequence.hashes = engine.pool.chain(None, sequence.prompt, lora=sequence.lora, salt=sequence.salt)
    return sequence


def test_an_answer_enters_the_cache_and_serves_the_next_turn() -> None:
    engine = scheduler()
    first = ask(list(range(6)), answer=7)
    run(engine, first)
    following = ask([*first.prompt, *first.answer, 5, 5])
    run(engine, following)
    assert following.cached == 12


def test_a_long_prompt_is_computed_in_pieces_beside_the_decoding_ones() -> None:
    engine = scheduler(blocks=64)
    talker = ask([1, 2], answer=9)
    engine.add(talker, 0.0)
    step = engine.plan(0.0)
    assert step is not None
    engine.complete(step, 0.0)
    reader = ask(list(range(70)))
    engine.add(reader, 0.0)
    sizes = []
    while reader.prefill_left:
        step = engine.plan(0.0)
        assert step is not None
        assert sum(count for _, count in step.work) <= PACE.max_batched_tokens
        sizes.append({id(sequence): count for sequence, count in step.work}[id(reader)])
        engine.complete(step, 0.0)
    assert sizes == [31, 31, 8]
    assert talker.produced == 4


def test_a_step_takes_its_prompt_tokens_and_longer_with_a_fuller_batch() -> None:
    assert PACE.seconds(100, 0) == 0.01 + 100 * 0.001
    assert PACE.seconds(0, 1) < PACE.seconds(0, 4) < PACE.seconds(10, 4)


def test_a_sequence_waits_until_the_blocks_of_its_whole_life_are_free() -> None:
    engine = scheduler(blocks=8)
    large, late = ask(list(range(16)), answer=13), ask(list(range(50, 58)), answer=5)
    engine.add(large, 0.0)
    engine.add(late, 0.0)
    step = engine.plan(0.0)
    assert step is not None
    assert (large.state, late.state) == ("running", "waiting")
    assert engine.pool.free == 4
    engine.complete(step, 0.0)
    while large.state == "running":
        step = engine.plan(0.0)
        assert step is not None
        engine.complete(step, 0.0)
    assert engine.plan(0.0) is not None
    assert late.state == "running"


def test_an_abort_frees_what_is_held_at_once() -> None:
    engine = scheduler()
    one, two = ask(list(range(20)), answer=9), ask(list(range(30, 50)), answer=9)
    engine.add(one, 0.0)
    engine.add(two, 0.0)
    step = engine.plan(0.0)
    assert step is not None
    engine.abort(one, 1.0)
    engine.complete(step, 2.0)
    assert one.produced == 0
    engine.abort(two, 3.0)
    engine.abort(two, 4.0)
    assert (engine.pool.used, engine.counts.aborted) == (0, 2)
    assert two.ended == 3.0


def test_the_cache_is_cleared_only_while_nobody_uses_it() -> None:
    engine = scheduler()
    running = ask(list(range(9)), answer=5)
    engine.add(running, 0.0)
    assert engine.plan(0.0) is not None
    assert not engine.pool.clear()
    engine.abort(running, 0.0)
    engine.pool.take_events()
    assert engine.pool.clear()
    assert engine.pool.take_events() == [Cleared()]
    assert truth(engine) == Counter()


moves = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 3), st.integers(1, 40), st.integers(1, 12)),
        st.tuples(st.just("step"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("abort"), st.integers(0, 20), st.just(0), st.just(0)),
        st.tuples(st.just("clear"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(moves)
def test_whatever_happens_events_tell_the_cache_and_every_sequence_ends(
    script: list[tuple[str, int, int, int]],
) -> None:
    engine = scheduler(blocks=16)
    asked: list[Sequence] = []
    held: Counter[bytes] = Counter()
    for move, which, length, answer in script:
        if move == "ask":
            asked.append(ask([which, *range(length)], answer))
            engine.add(asked[-1], 0.0)
        elif move == "step" and (step := engine.plan(0.0)):
            engine.complete(step, 0.0)
        elif move == "abort" and which < len(asked):
            engine.abort(asked[which], 0.0)
        elif move == "clear":
            engine.pool.clear()
        fold(engine.pool.take_events(), held)
        assert +held == truth(engine)
        assert engine.pool.used == len({block.number for each in engine.running for block in each.blocks})
    run(engine)
    assert engine.pool.used == 0
    assert {each.state for each in asked} <= {"finished", "aborted"}
    assert all(each.produced == len(each.answer) for each in asked if each.state == "finished")
