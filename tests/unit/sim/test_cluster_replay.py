"""The replay: everything is sent, in stretches; what became of it is counted once; the summary says it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from rich.console import Console

from picker.sim.agreement import Agreement
from picker.sim.board import Board, Story, summary
from picker.sim.load import Arrival, Record
from picker.sim.processes import interruptible
from picker.sim.replay import Replay, Sent, in_flight, phase_of
from picker.sim.score import Check, Phase, Score

TOKEN = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "length"}]}\n\n'
USAGE = (
    b'data: {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 1,'
    b' "prompt_tokens_details": {"cached_tokens": 16}}}\n\n'
)


@pytest.fixture
async def gateway() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["messages"] == "refuse":
            return web.json_response({}, status=503)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(TOKEN + USAGE)
        if body["messages"] != "cut":
            await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


def arrival(at: float, messages: str = "") -> Arrival:
    return Arrival(at, {"messages": messages, "max_tokens": 1, "ignore_eos": True})


async def test_every_arrival_is_sent_once_and_each_stretch_is_followed_by_a_pause(gateway: str) -> None:
    pauses: list[int] = []

    async def pause(number: int) -> None:
        pauses.append(number)
        replay.hold(2, tokens=1, about="Stop")

    kinds = ["", "refuse", "cut", "", "", "", ""]
    replay = Replay(
        gateway, [arrival(n / 100, kind) for n, kind in enumerate(kinds)], stretches=3, on_pause=pause
    )
    sent = await replay.run()
    assert pauses == [1, 2, 3]
    assert sum(not each.held for each in sent) == 7
    assert sum(each.held for each in sent) == 6
    phase = phase_of(sent)
    assert (phase.requests, phase.failures, phase.truncated) == (13, 1, 1)
    assert (phase.prompt_tokens, phase.reused_tokens) == (5 * 30, 5 * 16)
    assert (replay.progress.ended, replay.progress.failed, replay.progress.cut) == (7, 1, 1)


async def test_fewer_requests_than_stretches_are_all_sent(gateway: str) -> None:
    async def pause(_number: int) -> None:
        return

    assert len(await Replay(gateway, [arrival(0.0)], stretches=4, on_pause=pause).run()) == 1


def test_in_flight_is_what_began_before_and_ended_after() -> None:
    def sent(began: float, ended: float) -> Sent:
        return Sent(Record("r", 0.0, ended=ended - began), began, held=False)

    over, running, later = sent(0, 4.9), sent(1, 5.2), sent(5.4, 6)
    assert in_flight([over, running, later], since=5.0, until=5.3) == [running]


def score(phase: Phase, *, agreed: bool) -> tuple[Score, Story]:
    agreement = Agreement(
        agreed=agreed, seconds=0.1, bookings=25, differences=() if agreed else ("b7 differs",)
    )
    check = Check(3, agreement, agreement)
    found = Score(Phase(100, 0, 0, 1000, 100, 300, 900), phase, "picker-1", 1, {}, [check] * 10, 10)
    return found, Story(replicas=3, workers=4, killed_after=60, open_at_kill=30, seconds=120)


@pytest.mark.parametrize(
    ("phase", "agreed", "lines"),
    [
        (
            Phase(100, 0, 0, 1000, 200, 200, 500),
            True,
            ["All promises held.", "1 request failed", "20 % (2.00 x)"],
        ),
        (
            Phase(100, 3, 2, 1000, 120, 200, 500),
            False,
            ["3 of 100 requests failed", "2 responses", "b7 differs"],
        ),
    ],
)
def test_the_summary_says_what_happened_and_what_was_not_good(
    phase: Phase, agreed: bool, lines: list[str]
) -> None:
    console = Console(record=True, width=150, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123 - closed below
    with console.file:
        console.print(summary(*score(phase, agreed=agreed)))
    text = console.export_text()
    for line in lines:
        assert line in text


def test_without_a_terminal_the_board_speaks_in_lines() -> None:
    console = Console(record=True, width=100, force_terminal=False, quiet=False)
    with Board(console) as board:
        board.say("SIGKILL of picker-1")
    assert "SIGKILL of picker-1" in console.export_text()


async def test_an_interrupt_cancels_the_work_and_waits_for_its_clean_up() -> None:
    cleaned: list[bool] = []

    async def work() -> int:
        try:
            asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)
        return 1

    assert await interruptible(work()) is None
    assert cleaned == [True]


async def test_work_that_is_not_interrupted_returns_its_value_and_its_errors() -> None:
    async def fine() -> int:
        return 7

    async def broken() -> int:
        raise ValueError("it broke")

    assert await interruptible(fine()) == 7
    with pytest.raises(ValueError, match="it broke"):
        await interruptible(broken())
