"""Traces are read as they were published, and a bad one is told from a good one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from picker.bench.quality.fleet import engine_hashes
from picker.bench.quality.trace import BLOCK_TOKENS, DIRECTORY, TraceError, read

PUBLISHED = {
    "conversation_trace.jsonl": ("b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df", 12_031),
    "synthetic_trace.jsonl": ("bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131", 3_993),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_committed_traces_are_the_published_ones(name: str) -> None:
    content = (DIRECTORY / name).read_bytes()
    assert (hashlib.sha256(content).hexdigest(), content.count(b"\n")) == PUBLISHED[name]
    assert "Apache License" in (DIRECTORY / "NOTICE.md").read_text()


def test_equal_numbers_at_equal_places_are_equal_prefixes_to_pickers_and_engines() -> None:
    first, second, *_ = read(DIRECTORY / "conversation_trace.jsonl", requests=2)
    assert first.hash_ids[0] == second.hash_ids[0] == 0
    assert first.hashes[0] == second.hashes[0]
    assert first.hashes[1] != second.hashes[1]
    ours, others = engine_hashes(first), engine_hashes(second)
    assert (ours[0] == others[0], ours[1] == others[1]) == (True, False)
    assert len(first.prompt()) == first.input_length
    assert len(first.hashes) == first.input_length // BLOCK_TOKENS == len(ours)
    assert set(first.answer()).isdisjoint(second.answer())
    assert set(first.answer()).isdisjoint(first.prompt())


def test_requests_of_one_tick_are_spread_until_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    row = '{"timestamp": %d, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n'
    path.write_text("".join(row % at for at in (3000, 3000, 3000, 6000)))
    assert [request.at for request in read(path)] == [0.0, 1.0, 2.0, 3.0]
    assert [request.at for request in read(path, speed=2)] == [0.0, 0.5, 1.0, 1.5]
    assert len(read(path, requests=2)) == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1"),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}',
            "1 hash_ids for 600 tokens",
        ),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []}', "0 tokens"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [-1]}', "must lie in"),
        ('{"timestamp": 0, "input_length": 5, "hash_ids": [1]}', "output_length"),
        ("", "holds no request"),
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line)
    with pytest.raises(TraceError, match=told):
        read(path)


def test_a_missing_trace_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--trace FILE"):
        read(tmp_path / "none.jsonl")
