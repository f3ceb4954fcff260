"""What a demo shows: a live table on a terminal, plain lines elsewhere, and the summary at the end."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from picker.sim.replay import Progress
from picker.sim.score import Numbers, Score, quantile

LINE_SECONDS = 5.0
"""Between two lines of progress where there is no terminal."""
EVENTS_SHOWN = 6


@dataclass(slots=True)
class ReplicaState:
    """What the board shows of one replica."""

    state: str = "alive"
    numbers: Numbers = field(default_factory=Numbers)
    bookings: int = 0


class Board:
    """Keeps what is shown; draws it as long as it is entered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._begun = time.monotonic()
        self._drawn = 0.0
        self.phases: dict[str, Progress] = {}
        self.replicas: dict[str, ReplicaState] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._picture, console=self._console, refresh_per_second=4, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        """Something happened."""
        stamped = f"{time.monotonic() - self._begun:6.1f} s  {line}"
        self._events.append(stamped)
        if not self._live:
            self._console.print(Text(stamped), soft_wrap=True)

    def tick(self) -> None:
        """Say how far it is, now and then, where there is no terminal."""
        now = time.monotonic()
        if self._live or now - self._drawn < LINE_SECONDS or not self.phases:
            return
        self._drawn = now
        name, progress = list(self.phases.items())[-1]
        line = f"{name}: {progress.ended} of {progress.wanted} requests, {_reused(progress)} of the prompts reused"
        if self.replicas and progress is not next(iter(self.phases.values())):
            line += "; picks " + ", ".join(f"{n} {r.numbers.picks}" for n, r in self.replicas.items())
        self.say(line)

    def _picture(self) -> Group:
        events = Text("\n".join(self._events), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(_phases(self.phases), _replicas(self.replicas), events)


def _reused(progress: Progress) -> str:
    return _share(progress.cached_tokens, progress.prompt_tokens)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _ms(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2f} ms"


def _phases(phases: Mapping[str, Progress]) -> Table:
    table = Table(title="picker demo", title_justify="left", expand=False)
    for name in ("way", "requests", "failed", "cut", "prompt tokens reused", "first token p50", "p90"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for name, progress in phases.items():
        p50, p90 = quantile(progress.first_tokens, 0.5), quantile(progress.first_tokens, 0.9)
        counts = (f"{progress.ended} / {progress.wanted}", str(progress.failed), str(progress.cut))
        table.add_row(name, *counts, _reused(progress), _ms(p50), _ms(p90))
    return table


def _replicas(replicas: Mapping[str, ReplicaState]) -> Table:
    table = Table(expand=False)
    for name in ("replica", "", "picks", "of them hits", "decision p50", "bookings it knows"):
        table.add_column(name, justify="left" if name in ("replica", "") else "right")
    for name, replica in replicas.items():
        numbers = replica.numbers
        style = "red" if replica.state == "killed" else ""
        hits, p50 = _share(numbers.hits, numbers.picks), _ms(numbers.latency.quantile_ms(0.5))
        table.add_row(name, replica.state, str(numbers.picks), hits, p50, str(replica.bookings), style=style)
    return table


@dataclass(frozen=True, slots=True)
class Story:
    """What the summary tells beside the score."""

    replicas: int
    workers: int
    killed_after: int
    """Requests sent before the kill."""
    open_at_kill: int
    """Responses that were running when the replica was killed."""
    seconds: float


def summary(score: Score, story: Story) -> Group:
    """What happened, for somebody who sees this for the first time."""
    faults = score.faults()
    verdict = Text("\nAll promises held.", style="bold green")
    if faults:
        verdict = Text("\nNot good:\n" + "\n".join(f"  - {fault}" for fault in faults), style="bold red")
    return Group(_opening(score, story), _comparison(score), _closing(score, story), verdict)


def _opening(score: Score, story: Story) -> Text:
    return Text(
        f"\nA published conversation trace was sent through Envoy twice, to {story.workers} simulated engines with "
        f"prefix caches of their own: first round robin, then each request decided by one of {story.replicas} replicas "
        f"of the picker, one of which ({score.killed}) was killed with SIGKILL while it worked.\n"
    )


def _comparison(score: Score) -> Table:
    before, after = score.round_robin, score.picker
    table = Table(expand=False)
    for name in ("", "round robin", "picker"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("requests", str(before.requests), str(after.requests))
    table.add_row("failed", str(before.failures), str(after.failures))
    table.add_row("responses cut", str(before.truncated), str(after.truncated))
    gain = f"{_share(after.reused_tokens, after.prompt_tokens)} ({score.gain:.2f} x)"
    table.add_row("prompt tokens found in a cache", _share(before.reused_tokens, before.prompt_tokens), gain)
    table.add_row("time to first token, p50", _ms(before.ttft_p50_ms), _ms(after.ttft_p50_ms))
    table.add_row("time to first token, p90", _ms(before.ttft_p90_ms), _ms(after.ttft_p90_ms))
    return table


def _closing(score: Score, story: Story) -> Table:
    p50, p99 = score.latency.quantile_ms(0.5), score.latency.quantile_ms(0.99)
    picks = ", ".join(f"{name} {numbers.picks}" for name, numbers in score.numbers.items())
    good = sum(1 for check in score.checks if check.good)
    table = Table.grid(padding=(0, 2))
    table.add_row("", "")
    table.add_row(
        "Decisions",
        f"{_ms(p50)} at the median, {_ms(p99)} at p99.",
    )
    table.add_row("Picks", f"{picks} ({score.killed}: both lives).")
    table.add_row(
        "The kill",
        f"came after {story.killed_after} requests, with {story.open_at_kill} responses running: "
        f"{score.picker.truncated or 'none'} of them cut; {_lost(score.killed_in_flight)}",
    )
    table.add_row(
        "Agreement",
        f"{good} of {len(score.checks)} times, with arrivals paused, all living replicas showed the same bookings,"
        f" and these were what the engines carried{_held(score)}.",
    )
    table.add_row("Time", f"{story.seconds:.0f} s.")
    return table


def _held(score: Score) -> str:
    if not score.checks:
        return ""
    held = [check.views.bookings for check in score.checks]
    slowest = max(check.views.seconds for check in score.checks)
    return f" ({min(held)} to {max(held)} bookings held, equal after {slowest:.2f} s at most)"


def _lost(count: int) -> str:
    if not count:
        return "no request failed by it."
    requests = "1 request" if count == 1 else f"{count} requests"
    return f"{requests} failed: the replica was just deciding, and an unfinished decision dies with it."
