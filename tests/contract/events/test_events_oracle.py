"""Hashes, overlaps and dumps against Dynamo's own package: an independent implementation of the same scheme."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from picker.core.blocks import block_hash, chain, chain_seed, sequence_hashes
from picker.core.index import PrefixIndex
from picker.events.bridge.publisher import Counts as PublisherCounts
from picker.events.dynamo.rank import Counts, DynamoRank
from picker.events.dynamo.wire import decode_answer, decode_events
from picker.events.records import Answer, Ask, Epoch, Event, decode_event
from picker.events.records import decode_answer as read_answer

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / ".tools" / "dynamo"
COMMAND = "python -m pip install --no-deps --target .tools/dynamo ai-dynamo-runtime==1.6.1"


class Oracle:
    """Dynamo's package, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, *given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({what: given}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    assert (PACKAGE / "dynamo").is_dir(), (
        f"Dynamo's package is missing; in the project's directory: {COMMAND}"
    )
    script = Path(__file__).with_name("dynamo_oracle.py")
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE)},
    ) as process:  # fmt: skip
        yield Oracle(process)
        process.terminate()


def test_block_hashes_equal_dynamos(oracle: Oracle) -> None:
    rng = random.Random(11)
    for _ in range(200):
        size = rng.choice([1, 4, 16, 32])
        tokens = [rng.randrange(2**32) for _ in range(rng.randrange(3 * size + 2))]
        lora, salt = rng.choice(["", "adapter-a", "ad ü"]), rng.choice(["", "pepper", "tenant-1"])
        blocks = len(tokens) // size
        media = [[rng.randrange(2**64) for _ in range(rng.randrange(3))] for _ in range(blocks)]
        media = media if rng.random() < 0.5 else []
        theirs = oracle.ask("hashes", tokens, size, lora, salt, media)
        ours = [
            block_hash(tokens[n * size : (n + 1) * size], seed=chain_seed(lora, salt),
                       media=media[n] if media else ())
            for n in range(blocks)
        ]  # fmt: skip
        assert ours == theirs
        if not media and ours:
            sequence = sequence_hashes(tokens, size, lora=lora, salt=salt)
            assert sequence[0] == ours[0]
            assert [chain(before, own) for before, own in zip(sequence, ours[1:], strict=False)] == sequence[
                1:
            ]


class Fleet:
    """Dynamo workers as we follow them: wire, rank, records, index."""

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.ranks: dict[tuple[int, int], DynamoRank] = {}
        self.life = 0

    def epoch(self) -> Epoch:
        self.life += 1
        return Epoch(1, self.life)

    def rank(self, worker: int, number: int) -> DynamoRank:
        if (worker, number) not in self.ranks:
            name = f"{worker}@{number}"
            self.index.add(name)
            self.ranks[worker, number] = DynamoRank(
                name, worker, number, epoch=self.epoch, keep=64, counts=Counts(), published=PublisherCounts()
            )
        return self.ranks[worker, number]

    def tell(self, rank: DynamoRank, messages: list[bytes]) -> None:
        for message in messages:
            event = decode_event(message)
            assert isinstance(event, Event)
            if event.kind == "stored":
                self.index.store(rank.worker, event.hashes, event.tier)
            elif event.kind == "removed":
                self.index.remove(rank.worker, event.hashes, event.tier)
            else:
                self.index.clear(rank.worker)

    def hear(self, data: bytes) -> None:
        (event,) = decode_events(data).events
        rank = self.rank(event.worker_id, event.rank)
        self.tell(rank, rank.take(event, 0.0))


def own_hashes(prompt: list[int]) -> list[int]:
    return [block_hash([token] * 4) for token in prompt]


def test_overlaps_equal_dynamos_through_stores_removals_and_clears(oracle: Oracle) -> None:
    rng = random.Random(5)
    fleet, numbers = Fleet(), dict.fromkeys([(w, r) for w in (7, 2**63 + 5) for r in (0, 1)], 0)
    held: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {each: {} for each in numbers}
    for place in numbers:
        rank = fleet.rank(*place)
        fleet.tell(
            rank, rank.answered(decode_answer(b'{"TreeDump":{"events":[],"last_event_id":0}}'), 0.0)[0]
        )
        rank.ask()
        fleet.tell(
            rank, rank.answered(decode_answer(b'{"TreeDump":{"events":[],"last_event_id":0}}'), 0.0)[0]
        )
    queries = 0
    for _ in range(600):
        place = rng.choice(list(numbers))
        mine = held[place]
        prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 9))]
        keys = [hash(tuple(prompt[:end])) & (2**64 - 1) for end in range(1, len(prompt) + 1)]
        first = next((n for n, key in enumerate(keys) if key not in mine), len(keys))
        paths = set(mine.values())
        leaves = [key for key, path in mine.items() if not any((*path, token) in paths for token in range(3))]
        action = rng.random()
        if action < 0.02:
            data: Any = "cleared"
            mine.clear()
        elif action < 0.35 and leaves:
            gone = rng.sample(leaves, min(2, len(leaves)))
            data = {"removed": {"block_hashes": gone}}
            for key in gone:
                del mine[key]
        elif first < len(keys):
            own = own_hashes(prompt)
            blocks = [{"block_hash": keys[n], "tokens_hash": own[n]} for n in range(first, len(keys))]
            data = {"stored": {"parent_hash": keys[first - 1] if first else None, "blocks": blocks}}
            mine.update({keys[n]: tuple(prompt[: n + 1]) for n in range(first, len(keys))})
        else:
            continue
        numbers[place] += 1
        event = {"event_id": numbers[place], "data": data, "dp_rank": place[1]}
        oracle.ask("apply", place[0], event)
        fleet.hear(json.dumps({"worker_id": place[0], "storage_tier": "device", "event": event}).encode())
        query = [rng.randrange(3) for _ in range(8)]
        theirs = {(worker, rank): blocks for worker, rank, blocks in oracle.ask("match", own_hashes(query))}
        sequence = sequence_hashes([token for token in query for _ in range(4)], 4)
        match = fleet.index.match(sequence)
        ours = {each: match.overlap(fleet.rank(*each).worker).total for each in numbers}
        assert {each: blocks for each, blocks in ours.items() if blocks} == theirs
        queries += bool(theirs)
    assert queries > 100
    dump = oracle.ask("dump")
    for place in numbers:
        events = [each for each in dump if (each["worker_id"], each["event"]["dp_rank"]) == place]
        late = Fleet()
        rank = late.rank(*place)
        rank.ask()
        answered = json.dumps({"TreeDump": {"events": events, "last_event_id": numbers[place]}}).encode()
        messages, settled = rank.answered(decode_answer(answered), 0.0)
        late.tell(rank, messages)
        assert settled
        assert late.index.held(rank.worker) == fleet.index.held(fleet.rank(*place).worker)
        pieces = [read_answer(each) for each in rank.publisher.answers(Ask(1, 0, 0, 0))]
        told = {
            key
            for piece in pieces
            if isinstance(piece, Answer)
            for part in piece.blocks
            for key in part.hashes
        }
        assert told == late.index.held(rank.worker)
