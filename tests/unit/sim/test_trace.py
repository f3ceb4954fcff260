from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from picker.sim.engine.chat import ChatTemplate
from picker.sim.engine.tokens import Tokenizer
from picker.sim.model import DIRECTORY
from picker.sim.trace import SAMPLE, Row, arrivals, messages, sample
from picker.sim.trace.choose import choose, reuse

TOKENIZER = Tokenizer(DIRECTORY)
TEMPLATE = ChatTemplate(DIRECTORY)


def ids(row: Row) -> list[int]:
    return TOKENIZER.encode(TEMPLATE.render(messages(row)))


def row(*blocks: int, rest: int = 512) -> Row:
    return Row(0.0, 512 * (len(blocks) - 1) + rest, 100, blocks)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


chains = st.lists(st.integers(0, 10**6), min_size=1, max_size=12)


@given(chains, chains, chains)
def test_equal_leading_numbers_give_equal_leading_tokens(
    shared: list[int], one: list[int], other: list[int]
) -> None:
    alone = ids(row(*shared))
    tail = len(
        TOKENIZER.encode("<|im_end|>\n<|im_start|>user\nPlease go on.<|im_end|>\n<|im_start|>assistant\n")
    )
    assert common(ids(row(*shared, *one)), ids(row(*shared, *other))) >= len(alone) - tail


@given(chains, st.integers(0, 10**6), st.integers(0, 10**6))
def test_other_numbers_give_other_tokens(shared: list[int], one: int, other: int) -> None:
    same = common(ids(row(*shared, one, 1, 2)), ids(row(*shared, other, 1, 2)))
    if one != other:
        assert same < len(ids(row(*shared))) + 10


def test_a_cut_block_is_the_beginning_of_the_whole_one() -> None:
    whole, cut = messages(row(0, 7, 8)), messages(row(0, 7, 8, rest=100))
    assert whole[1]["content"].startswith(cut[1]["content"])
    assert len(cut[1]["content"]) < len(whole[1]["content"])


def test_the_sample_is_several_hundred_requests_of_a_few_hundred_to_a_few_thousand_tokens() -> None:
    rows = sample()
    sizes = sorted(len(ids(each)) for each in rows)
    assert 300 <= len(rows) <= 500
    assert sizes[0] >= 150
    assert 500 <= sizes[len(sizes) // 2] <= 1200
    assert sizes[-1] <= 3000
    assert 40 <= sum(sizes) / sum(len(each.hash_ids) for each in rows) <= 64


def test_the_sample_is_rich_in_conversations_that_go_on() -> None:
    rows = sample()
    assert reuse([each.hash_ids[1:] for each in rows]) > 0.5
    assert len({each.hash_ids[1] for each in rows}) > 50


def test_the_sample_comes_in_order_and_not_in_bursts() -> None:
    times = [each.at for each in sample()]
    assert times == sorted(times)
    assert times[0] == 0.0
    assert len(set(times)) == len(times)


def test_choosing_from_the_sample_again_changes_nothing() -> None:
    lines = SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)
    assert choose(lines) == lines


def test_the_sample_names_its_source_and_licence() -> None:
    notice = (SAMPLE.parent / "NOTICE.md").read_text(encoding="utf-8")
    assert "kvcache-ai/Mooncake" in notice
    assert "Apache License, Version 2.0" in notice


def test_arrivals_come_faster_by_the_speed() -> None:
    rows = sample()[:20]
    slow, fast = arrivals(rows, model="m"), arrivals(rows, speed=10, model="m")
    assert fast[-1].at * 10 == slow[-1].at
    assert fast[3].body["messages"] == messages(rows[3])
    assert fast[3].body["max_tokens"] == rows[3].output_tokens
