"""Checks of what replicas show, on hand-made histories; and callers that send again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from chaos.checkers import Check, judge
from chaos.checks import (
    answered,
    booking_shown,
    events_healthy,
    no_live_gone,
    poison_refused,
    prefixes_found,
    retried,
    schema_follows,
    under_way_at_once,
    whole,
)
from chaos.history import Record, Writer, read
from chaos.load import OpenLoop, Sender
from chaos.story import Story
from chaos.testing import Tale
from chaos.verdict import Verdict

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
HIT, MISS = (f'endpoint_picker_requests_total{{result="{result}"}}' for result in ("hit", "miss"))
SCHEMA = "picker_plane_backend_schema_total"


def verdict(check: Check, story: Story) -> Verdict:
    return judge(check, story).verdict


def test_bookings_of_a_kind_are_counted_by_id_not_by_look() -> None:
    told = Tale()
    told.views(1, 5, "a", "b", state="draining")
    story = told.story()
    assert verdict(booking_shown(state="draining", at_least=2), story) is PASS
    assert verdict(booking_shown(state="draining", at_least=3), story) is FAIL
    assert verdict(booking_shown(state="active"), story) is FAIL
    assert verdict(booking_shown(superseded=True), story) is FAIL
    assert verdict(booking_shown(attempt=2), story) is FAIL


@pytest.mark.parametrize(("outcome", "expected"), [("complete", PASS), ("cut", FAIL)])
def test_a_request_sent_again_must_be_whole_in_the_end(outcome: str, expected: Verdict) -> None:
    told = Tale()
    told.call(1, sent=1, ended=2, outcome="cut")
    told.add(2.1, "client-1.1", "call", "invoke", number=1, again=1)
    told.add(4.0, "client-1.1", "call", "ok" if outcome == "complete" else "fail", outcome=outcome)
    assert verdict(retried(at_least=1), told.story()) is expected


def test_without_a_second_try_nothing_was_sent_again() -> None:
    told = Tale()
    told.call(1, sent=1, ended=2)
    assert verdict(retried(at_least=1), told.story()) is FAIL


def test_requests_under_way_at_once_are_counted_at_their_most() -> None:
    told = Tale()
    for number in range(5):
        told.call(number, sent=1 + number * 0.1, ended=3)
    told.call(9, sent=4, ended=5)
    assert verdict(under_way_at_once(at_least=5), told.story()) is PASS
    assert verdict(under_way_at_once(at_least=6), told.story()) is FAIL


def status(told: Tale, replica: str, t: float, events: str) -> None:
    told.add(t, replica, "status", "ok", asked=t, hold="headers", events=events)


def test_events_count_as_whole_by_the_last_word_of_every_replica() -> None:
    told = Tale()
    for replica in told.replicas:
        status(told, replica, 1, "away")
        status(told, replica, 9, "healthy")
    assert verdict(events_healthy(), told.story()) is PASS
    status(told, "picker-1", 10, "recovering")
    assert verdict(events_healthy(), told.story()) is FAIL


def test_a_replica_without_a_word_leaves_it_open_whether_events_are_whole() -> None:
    told = Tale()
    status(told, "picker-0", 1, "healthy")
    assert verdict(events_healthy(), told.story()) is UNKNOWN


@pytest.mark.parametrize(("hits", "misses", "expected"), [(40, 5, PASS), (5, 40, FAIL), (3, 1, UNKNOWN)])
def test_prefixes_are_found_by_picks_after_the_heal_alone(hits: int, misses: int, expected: Verdict) -> None:
    told = Tale()
    told.fault("kill", "picker-0", begun=5, healed=6)
    told.counters("picker-0", 1, **{HIT: 500, MISS: 500})
    told.counters("picker-0", 9, **{HIT: hits, MISS: misses})  # counted from zero by the new life
    assert verdict(prefixes_found(share=0.6), told.story()) is expected


def upgraded(early: int, late: int) -> Story:
    told = Tale()
    for number, replica in enumerate(told.replicas):
        told.fault("upgrade", replica, begun=5 + 5 * number, healed=9 + 5 * number)
        told.counters(replica, 9, **{SCHEMA: early})
        told.counters(replica, 20, **{SCHEMA: late})
    return told.story()


@pytest.mark.parametrize(
    ("early", "late", "expected"), [(1, 2, PASS), (2, 2, FAIL), (1, 1, FAIL), (1, 3, FAIL)]
)
def test_the_newer_schema_is_written_from_the_last_upgrade_on(
    early: int, late: int, expected: Verdict
) -> None:
    assert verdict(schema_follows(1, 2), upgraded(early, late)) is expected


def test_an_upgrade_that_did_not_reach_all_says_nothing_of_schemas() -> None:
    told = Tale()
    told.fault("upgrade", "picker-0", begun=5, healed=9)
    assert verdict(schema_follows(1, 2), told.story()) is UNKNOWN


@pytest.mark.parametrize(
    ("status", "expected"), [(400, PASS), (200, PASS), (413, PASS), (0, FAIL), (500, FAIL), (502, FAIL)]
)
def test_a_poisoned_body_is_answered_explicitly(status: int, expected: Verdict) -> None:
    told = Tale()
    life = {"id": "p", "kind": "poison-bodies", "target": "envoy"}
    told.add(1, "nemesis", "fault", "invoke", **life, phase="begin", value={})
    told.add(2, "nemesis", "fault", "info", **life, phase="seen", value={"answers": {"noise": status}})
    assert verdict(poison_refused(), told.story()) is expected


def test_without_poison_nothing_is_known_of_it() -> None:
    assert verdict(poison_refused(), Tale().story()) is UNKNOWN


def dark(*, both: bool, sent: float) -> Story:
    told = Tale()
    told.fault("kill", "picker-0", begun=5, healed=10)
    if both:
        told.fault("kill", "picker-1", begun=5, healed=10)
    told.call(1, sent=sent, ended=sent + 0.1, outcome="refused", status=500)
    told.call(2, sent=20, ended=21)
    return told.story()


def test_refusals_are_excused_while_no_replica_runs_and_then_alone() -> None:
    assert verdict(answered(dark=True), dark(both=True, sent=7)) is PASS
    assert verdict(answered(dark=True), dark(both=True, sent=15)) is FAIL
    assert verdict(answered(dark=True), dark(both=False, sent=7)) is FAIL
    assert verdict(answered(), dark(both=True, sent=7)) is FAIL


@pytest.mark.parametrize(("left", "expected"), [(True, PASS), (False, FAIL)])
def test_a_booking_ends_when_its_worker_leaves_the_pool_though_the_engine_works_on(
    left: bool, expected: Verdict
) -> None:
    told = Tale()
    told.carried("a", 1, 20)
    told.views(2, 8, "a")
    told.views(8, 20)
    if left:
        told.fault("leave", "engine-0", begun=8, healed=15)
    assert verdict(no_live_gone(), told.story()) is expected


@pytest.mark.parametrize(
    ("fault", "others", "expected"), [(True, 1, PASS), (True, 0, FAIL), (False, 1, FAIL)]
)
def test_a_view_may_take_one_request_for_another_only_while_the_log_cannot_tell_them_apart(
    fault: bool, others: int, expected: Verdict
) -> None:
    told = Tale()
    told.carried("a", 1, 20)
    told.views(2, 8, "a", *(["ended"] if others else []))
    told.views(8, 20, *(["ended"] if others else []))
    if fault:
        told.fault("half-open", "envoy>picker-0", begun=5, healed=19)
    assert verdict(no_live_gone(), told.story()) is expected


@pytest.mark.parametrize(("early", "expected"), [("response", PASS), ("headers", FAIL)])
def test_a_cut_is_excused_by_how_the_stream_was_held_when_it_began(early: str, expected: Verdict) -> None:
    told = Tale()
    told.status("picker-0", 0.9, hold=early)
    told.status("picker-0", 4.0, hold="headers")
    told.fault("kill", "picker-0", begun=5, healed=6)
    told.view("picker-1", 2.0, "a", owner="picker-0")
    told.call(1, sent=1, ended=5.2, outcome="cut", booking="a", status=200)
    told.call(2, sent=10, ended=11)
    assert verdict(whole(), told.story()) is expected


@pytest.fixture
async def flaky() -> AsyncIterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that refuses every request twice, and what it was sent."""
    got: list[tuple[str, bytes]] = []

    async def answer(request: web.Request) -> web.Response:
        got.append((request.headers["x-request-id"], await request.read()))
        if len(got) < 3:
            return web.Response(status=500)
        piece = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
        return web.Response(body=piece * 8 + b"data: [DONE]\n\n")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", got
    await runner.cleanup()


@pytest.mark.parametrize(("retries", "outcomes"), [(0, ["refused"]), (3, ["refused", "refused", "complete"])])
async def test_a_caller_sends_the_same_request_again_under_the_same_id_until_it_is_whole(
    flaky: tuple[str, list[tuple[str, bytes]]], tmp_path: Path, retries: int, outcomes: list[str]
) -> None:
    url, got = flaky
    load = OpenLoop(rate=20, tokens=(8, 8), long_share=0, cancel_share=0, retries=retries)
    assert load.arrivals("1", 5) == OpenLoop(rate=20, tokens=(8, 8), long_share=0, cancel_share=0).arrivals(
        "1", 5
    )
    one = load.arrivals("1", 5)[0]
    async with aiohttp.ClientSession() as http:
        with Writer(tmp_path / "history.jsonl") as history:
            sender = Sender(url, history, http, tag="t", timeout=5, retries=retries)
            await asyncio.wait_for(sender.call(one), 10)
    records: list[Record] = read(tmp_path / "history.jsonl")
    assert [each.value["outcome"] for each in records if each.type != "invoke"] == outcomes
    assert len(set(got)) == 1
