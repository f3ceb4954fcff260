"""The subscriber's own rules, without a server: what arrives is handed in as the connection would."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from picker.core.index import PrefixIndex
from picker.events.records import SCHEMA, Event, encode
from picker.events.subjects import Subjects
from picker.events.subscriber import Subscriber
from picker.settings import EventSettings

POOL = "default/default"
SUBJECTS = Subjects(POOL)


def make(
    url: str = "nats://127.0.0.1:1", on_stored: Any = lambda _worker, _hashes: None, queue: int = 64
) -> Subscriber:
    settings = EventSettings(nats_url=SecretStr(url), events_queue=queue)
    return Subscriber(settings, POOL, PrefixIndex(), clock=lambda: 0.0, on_stored=on_stored)


def event(sequence: int, kind: Any, hashes: Sequence[int] = (), tier: int = 0) -> bytes:
    return encode(Event(SCHEMA, 1, 1, sequence, kind, list(hashes), tier))


async def test_without_a_url_nothing_runs_and_nothing_is_waited_for() -> None:
    subscriber = make(url="")
    subscriber.watch("a:1")
    task = asyncio.create_task(subscriber.run())
    await asyncio.sleep(0)
    assert not task.done()
    assert subscriber.unrecovered() == []
    assert not subscriber.status().enabled
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_listener_that_fails_is_counted_and_stops_nothing() -> None:
    def failing(_worker: str, _hashes: Sequence[int]) -> None:
        raise RuntimeError("listener")

    subscriber = make(on_stored=failing)
    subscriber.watch("a:1")
    for message in (event(1, "cleared"), event(2, "stored", [5]), event(3, "stored", [6])):
        subscriber._message(SUBJECTS.events("a:1"), message)
    assert subscriber._index.held("a:1") == {5, 6}  # type: ignore[attr-defined]
    assert subscriber.counts.listener_errors == 2


def test_only_watched_workers_are_listened_to_and_a_worker_let_go_stays_gone() -> None:
    subscriber = make()
    subscriber.watch("a:1")
    subscriber._message(SUBJECTS.events("b:1"), event(1, "cleared"))
    subscriber._message(SUBJECTS.events("a:1"), event(1, "cleared"))
    subscriber.unwatch("a:1")
    subscriber._message(SUBJECTS.events("a:1"), event(2, "stored", [5]))
    assert subscriber.counts.unwatched == 2
    assert subscriber._index.held("a:1") == frozenset()  # type: ignore[attr-defined]


def test_two_ranks_of_one_address_are_two_workers() -> None:
    subscriber = make()
    for worker in ("a:1", "a:1@1"):
        subscriber.watch(worker)
        subscriber._message(SUBJECTS.events(worker), event(1, "cleared"))
    subscriber._message(SUBJECTS.events("a:1@1"), event(2, "stored", [5]))
    assert subscriber._index.held("a:1") == frozenset()  # type: ignore[attr-defined]
    assert subscriber._index.held("a:1@1") == {5}  # type: ignore[attr-defined]


def test_only_device_blocks_are_told_to_the_listener() -> None:
    heard: list[int] = []
    subscriber = make(on_stored=lambda _worker, hashes: heard.extend(hashes))
    subscriber.watch("a:1")
    for message in (event(1, "cleared"), event(2, "stored", [5], 1), event(3, "stored", [5], 0)):
        subscriber._message(SUBJECTS.events("a:1"), message)
    assert heard == [5]


async def test_a_full_queue_drops_the_oldest_and_the_gap_is_seen() -> None:
    subscriber = make(queue=64)
    subscriber.watch("a:1")
    subject = SUBJECTS.events("a:1")
    await subscriber._arrived(SimpleNamespace(subject=subject, data=event(1, "cleared")))  # type: ignore[arg-type]
    for number in range(2, 102):
        message = SimpleNamespace(subject=subject, data=event(number, "stored", [number]))
        await subscriber._arrived(message)  # type: ignore[arg-type]
    assert len(subscriber._queue) == 64
    assert subscriber.counts.queue_dropped == 37
    while subscriber._queue:
        subscriber._message(*subscriber._queue.popleft())
    assert subscriber.unrecovered() == ["a:1"]


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_hostile_bytes_never_raise(messages: list[bytes]) -> None:
    subscriber = make()
    subscriber.watch("a:1")
    for message in messages:
        subscriber._message(SUBJECTS.events("a:1"), message)
    subscriber.status()


def test_a_name_no_subject_can_carry_is_not_followed() -> None:
    subscriber = make()
    subscriber.watch("x" * 5000)
    assert subscriber.status().workers == {}
    subscriber.unwatch("x" * 5000)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_that_is_sent_requests_and_tells_nothing_is_called_silent_once() -> None:
    clock = Clock()
    settings = EventSettings(nats_url=SecretStr("nats://127.0.0.1:1"), events_silent_seconds=60)
    subscriber = Subscriber(
        settings, POOL, PrefixIndex(), clock=clock, on_stored=lambda _worker, _hashes: None
    )
    subscriber.watch("a:1")
    subscriber.watch("b:1")
    for second in range(100):
        clock.now = float(second)
        subscriber.routed("a:1", clock.now)
        subscriber.routed("gone:1", clock.now)
        assert subscriber.silent() == (["a:1"] if second >= 60 else [])
    assert subscriber.counts.silences == 1
    status = subscriber.status().workers
    assert (status["a:1"].silent, status["b:1"].silent) == (True, False)
    assert (status["a:1"].routed_age, status["b:1"].routed_age) == (0.0, None)
    subscriber._message(SUBJECTS.events("a:1"), event(0, "beat"))
    assert subscriber.silent() == ["a:1"], "a bridge that beats is not an engine that tells"
    subscriber._message(SUBJECTS.events("a:1"), event(1, "cleared"))
    assert subscriber.silent() == []
    clock.now = 1000.0
    for _ in range(7):
        subscriber.routed("a:1", clock.now)
    clock.now = 2000.0
    assert subscriber.silent() == [], "few requests may all have been served from the cache"
    subscriber.routed("a:1", clock.now)
    assert subscriber.silent() == ["a:1"]


def test_without_events_nobody_is_called_silent() -> None:
    subscriber = make(url="")
    subscriber.watch("a:1")
    for second in range(1000):
        subscriber.routed("a:1", float(second))
    assert subscriber.silent() == []


def test_picks_are_learned_until_events_tell_and_what_they_told_stays() -> None:
    settings = EventSettings(approximate=True, nats_url=SecretStr("nats://127.0.0.1:1"))
    index = PrefixIndex()
    subscriber = Subscriber(settings, POOL, index, clock=lambda: 0.0, on_stored=lambda _worker, _hashes: None)
    subscriber.watch("a:1")
    assert not subscriber.told_of("a:1")
    subscriber.routed("a:1", 0.0, [1, 2])
    subscriber.routed("b:1", 0.0, [1, 2])
    assert index.held("a:1") == {1, 2}
    for message in (event(1, "cleared"), event(2, "stored", [2, 3])):
        subscriber._message(SUBJECTS.events("a:1"), message)
    assert subscriber.told_of("a:1")
    subscriber.routed("a:1", 0.0, [9])
    assert subscriber.picks is not None
    subscriber.picks.approximate.expire(1e9)
    assert index.held("a:1") == {2, 3}
