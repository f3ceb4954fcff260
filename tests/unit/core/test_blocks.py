"""Block hashes: the public scheme to the digit, chains, seeds, and what is refused."""

from __future__ import annotations

import struct
from array import array

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from picker.core import blocks as module
from picker.core.blocks import SEED, Chains, block_hash, chain, chain_seed, extend_hashes, sequence_hashes

tokens = st.lists(st.integers(0, 2**32 - 1), max_size=70)


def naive(ids: list[int], size: int, seed: int) -> list[int]:
    found: list[int] = []
    for start in range(0, len(ids) - size + 1, size):
        own = xxhash.xxh3_64_intdigest(struct.pack(f"<{size}I", *ids[start : start + size]), seed)
        found.append(own if not found else xxhash.xxh3_64_intdigest(struct.pack("<QQ", found[-1], own), 1337))
    return found


def test_blocks_of_the_base_model_hash_as_published() -> None:
    assert block_hash(range(16)) == 15310707395893867146
    assert block_hash(range(16, 32)) == 15292316782987903195
    assert sequence_hashes(range(32), 16) == [15310707395893867146, 13769157705258532664]


def test_an_adapter_is_in_the_seed_as_published() -> None:
    assert sequence_hashes(range(16), 16, lora="adapter-a") == [17429507120064042683]


def test_media_of_a_block_hash_as_published_in_any_order() -> None:
    assert block_hash(range(16), media=[1, 2]) == block_hash(range(16), media=[2, 1]) == 15672021759822216346


@pytest.mark.parametrize(
    ("lora", "salt", "expected"),
    [
        ("", "tenant-a", 2130915519417463704),
        ("", "ü", 4364285576178661025),
        ("adapter-a", "tenant-a", 6489352321440148776),
        ("adapter-a", "ü", 11999697060658711279),
    ],
)
def test_a_cache_salt_is_in_the_seed_as_in_dynamo_1_6_1(lora: str, salt: str, expected: int) -> None:
    assert sequence_hashes(range(16), 16, lora=lora, salt=salt) == [expected]


def test_empty_names_are_the_base_model() -> None:
    assert chain_seed() == chain_seed("", "") == SEED


def test_an_adapter_and_a_salt_of_one_name_differ() -> None:
    assert len({chain_seed("x"), chain_seed("", "x"), chain_seed("x", "x"), chain_seed()}) == 4


@given(tokens, st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_any_chain_equals_the_scheme_written_out(ids: list[int], size: int, seed: int) -> None:
    assert extend_hashes(None, ids, size, seed=seed) == naive(ids, size, seed)


@given(tokens, st.integers(1, 20))
def test_a_chain_continued_from_a_parent_equals_the_whole_chain(ids: list[int], size: int) -> None:
    whole = sequence_hashes(ids, size, lora="a", salt="s")
    seed = chain_seed("a", "s")
    for cut in range(len(whole)):
        parent = whole[cut - 1] if cut else None
        assert extend_hashes(parent, ids[cut * size :], size, seed=seed) == whole[cut:]


@given(tokens)
def test_own_hashes_chain_to_the_sequence_hashes(ids: list[int]) -> None:
    last, found = None, []
    for start in range(0, len(ids) - 3, 4):
        last = chain(last, block_hash(ids[start : start + 4]))
        found.append(last)
    assert found == sequence_hashes(ids, 4)


@given(tokens)
def test_arrays_and_lists_hash_alike(ids: list[int]) -> None:
    assert sequence_hashes(array("I", ids), 4) == sequence_hashes(ids, 4) == sequence_hashes(tuple(ids), 4)
    assert sequence_hashes(array("Q", ids), 4) == sequence_hashes(ids, 4)


def test_a_last_block_that_is_not_full_has_no_hash() -> None:
    assert sequence_hashes(range(15), 16) == []
    assert sequence_hashes(range(31), 16) == sequence_hashes(range(16), 16)
    assert sequence_hashes([], 16) == []


@pytest.mark.parametrize("bad", [-1, 2**32, 2**64, 1.5, "7", None])
def test_a_token_outside_32_bits_is_refused_with_its_value_and_place(bad: object) -> None:
    with pytest.raises(ValueError, match=r"token .* at position 3") as caught:
        sequence_hashes([1, 2, 3, bad, 5], 2)  # type: ignore[list-item]
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize("size", [0, -16])
def test_a_block_size_below_one_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"block size {size}"):
        sequence_hashes([1], size)


def test_a_media_hash_outside_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="media hashes"):
        block_hash([1], media=[2**64])


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 2**32 - 1]), min_size=1, max_size=90), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 100),
    st.sampled_from(["", "adapter"]),
)
def test_remembered_stretches_change_no_hash(
    prompts: list[list[int]], size: int, most: int, lora: str
) -> None:
    chains = Chains(most, secret=5)
    whole: list[int] = []
    for part in prompts:
        whole = [*whole[: len(whole) // 2], *part * 3]
        expected = sequence_hashes(whole, size, lora=lora)
        assert chains.hashes(whole, size, lora=lora) == expected
        assert chains.hashes(array("I", whole), size, lora=lora) == expected
        assert len(chains) <= most


def test_stretches_under_another_seed_or_size_are_others() -> None:
    chains, prompt = Chains(10_000, secret=5), [7] * 2_000
    for size in (16, 8, 4):
        for lora, salt in (("", ""), ("a", ""), ("", "a"), ("b", "a")):
            hashes = chains.hashes(prompt, size, lora=lora, salt=salt)
            assert hashes == sequence_hashes(prompt, size, lora=lora, salt=salt)


def test_what_a_caller_does_to_its_hashes_is_not_remembered() -> None:
    chains, prompt = Chains(100, secret=5), [3] * (32 * 16)
    chains.hashes(prompt, 16).clear()
    assert len(chains) == 32
    assert chains.hashes(prompt, 16) == sequence_hashes(prompt, 16)


@pytest.mark.parametrize("blocks", [4, 8, 31, 32, 33, 63, 100])
def test_of_a_prompt_hashed_before_at_most_three_blocks_are_hashed_again(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains, prompt = Chains(1_000, secret=5), list(range(16 * blocks + 5))
    expected, hashed = chains.hashes(prompt, 16), []
    chained = module._chained

    def counted(last: int | None, data: bytes, end: int, width: int, seed: int) -> list[int]:
        hashed.append(end // width)
        return chained(last, data, end, width, seed)

    monkeypatch.setattr(module, "_chained", counted)
    assert chains.hashes(prompt, 16) == expected == sequence_hashes(prompt, 16)
    assert sum(hashed[:-1]) <= 3, "the last one is the long way's"


def test_remembering_refuses_a_block_size_below_one_token() -> None:
    with pytest.raises(ValueError, match="at least 1 token"):
        Chains(1, secret=5).hashes([1], 0)
