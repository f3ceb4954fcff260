"""How often workers are asked about whose bridge does not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from picker.events import cursor as following
from picker.events.counts import Counts
from picker.events.cursor import Cursor
from picker.events.follower import Follower
from picker.events.recovering import (
    RETRY_MOST_SECONDS,
    SILENT_EACH_SECONDS,
    SILENT_MOST_SECONDS,
    Recovering,
)
from picker.settings import EventSettings

DRAWN = 400
LATE = 40
"""So many questions in, the pause has long stopped growing."""


def longest_pause(*, workers: int, answers: bool | None, connected: bool = True) -> float:
    """The longest of many pauses, while so many workers are asked about."""
    counts = Counts()
    recovering = Recovering(
        EventSettings(), cast("Any", SimpleNamespace(connected=connected)), cast("Any", None),
        applier=cast("Any", None), counts=counts, here=lambda _worker, _ask: None,
    )  # fmt: skip
    recovering._asked_about = workers
    follower = Follower("10.0.0.1:8000", Cursor(following.Counts()), wake=asyncio.Event(), answers=answers)
    state = cast("Any", SimpleNamespace(args=(follower,), attempt_number=LATE))
    return max(recovering._pause(state) for _ in range(DRAWN))


def test_a_few_workers_without_a_bridge_are_asked_about_every_few_seconds() -> None:
    assert longest_pause(workers=4, answers=False) <= RETRY_MOST_SECONDS


def test_of_many_workers_without_a_bridge_each_is_asked_about_seldom() -> None:
    assert RETRY_MOST_SECONDS < longest_pause(workers=100, answers=False) <= 100 * SILENT_EACH_SECONDS
    assert longest_pause(workers=100_000, answers=None) <= SILENT_MOST_SECONDS


def test_a_bridge_that_answers_is_asked_soon_however_many_others_do_not() -> None:
    assert longest_pause(workers=1_000, answers=True) <= RETRY_MOST_SECONDS


def test_while_nats_is_away_nothing_is_known_of_the_bridges() -> None:
    assert longest_pause(workers=1_000, answers=False, connected=False) <= RETRY_MOST_SECONDS
