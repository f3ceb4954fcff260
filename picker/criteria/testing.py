"""The contract of a criterion, as a check that its author runs: `hold_to_contract`. Needs no test framework."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from picker.core.criteria import MOST_BLOCKS, MOST_REASON, SEAM, Criterion, Setup, Traits, WorkerTraits

MOST_SECONDS_PER_WORKER = 0.01
"""No criterion needs nearly as long: for a pool of 1,000 workers it would be ten seconds for each request."""

REQUESTS: tuple[Traits, ...] = (
    Traits(),
    Traits(model="m", base_model="m", api="chat", prompt_tokens=1_000_000, tokens_known=True),
    Traits(model="sql", base_model="m", lora="sql", api="completions", prompt_tokens=17, tokens_known=True),
    Traits(
        model="\u00fc\u4e16" * 200,
        headers=MappingProxyType({"x-request-id": "1", ":path": "/v1/completions"}),
    ),
    Traits(
        headers=MappingProxyType({f"x-{n}": "\x00\r\n" * n for n in range(64)}), priority=-1, objective="o"
    ),
)
"""Requests of all sorts, odd ones among them. Add some that concern your criterion."""

WORKERS: tuple[WorkerTraits, ...] = (
    WorkerTraits("10.0.0.1:8000", "10.0.0.1:8000"),
    WorkerTraits("10.0.0.2:8000@3", "10.0.0.2:8000", 3, MappingProxyType({"zone": "a"}), 0, 0, 0.0, frozenset()),
    WorkerTraits("[fd00::1]:8000", "[fd00::1]:8000", 0, MappingProxyType({"zone": "b", "": ""}), 999, 10_000, 1.0,
                 frozenset({"sql"})),
    WorkerTraits("10.0.0.3:80", "10.0.0.3:80", labels=MappingProxyType({f"label-{n}": "\u00fc" for n in range(64)})),
)  # fmt: skip
"""Workers of all sorts: without labels, without a report, idle, overloaded."""


def hold_to_contract(
    make: Callable[[Setup], Criterion],
    *,
    setup: Setup | None = None,
    requests: Sequence[Traits] = (),
    workers: Sequence[WorkerTraits] = (),
    concerned: bool = True,
) -> None:
    """Check that a criterion keeps what `picker.core.criteria` says, on our samples and on those given.

    Args:
        make: What the entry point names.
        setup: What it is made with.
        requests: Requests that concern the criterion, beside `REQUESTS`.
        workers: Workers that it tells apart, beside `WORKERS`.
        concerned: Whether it must have something to say on one of the requests at least.

    Raises:
        AssertionError: it does not; the text says in what.
    """
    criterion = make(setup or Setup())
    assert getattr(criterion, "seam", None) == SEAM, (
        f"seam is {getattr(criterion, 'seam', None)!r}, not {SEAM}"
    )
    pool = (*WORKERS, *workers)
    said = 0
    for request in (*REQUESTS, *requests):
        before = dict(request.headers)
        first, second = (_asked(criterion, request, pool) for _ in range(2))
        assert first == second, f"it says {first} and then {second} of the same workers on the same request"
        assert dict(request.headers) == before, "it changed the request's headers"
        said += first is not None
    assert said or not concerned, "it has nothing to say on any of these requests: give some that concern it"


def _asked(
    criterion: Criterion, request: Traits, workers: Sequence[WorkerTraits]
) -> Mapping[str, tuple[str, float]] | None:
    begun = time.perf_counter()
    judge = criterion.prepare(request)
    if judge is None:
        return None
    bars, blocks = getattr(judge, "bars", None), getattr(judge, "blocks", None)
    assert callable(bars) or callable(blocks), f"{type(judge).__name__} has neither bars nor blocks"
    answers = {
        worker.name: (bars(worker) if bars else "", blocks(worker) if blocks else 0.0) for worker in workers
    }
    seconds = (time.perf_counter() - begun) / len(workers)
    for fault in _faults(answers):
        raise AssertionError(f"{fault} (request {request})")
    assert seconds < MOST_SECONDS_PER_WORKER, f"it took {seconds:.6f} s per worker"
    return answers


def _faults(answers: Mapping[str, tuple[object, object]]) -> Iterator[str]:
    for worker, (why, blocks) in answers.items():
        if not isinstance(why, str):
            yield f"bars({worker}) gave {why!r}, not a text"
        elif len(why) > MOST_REASON or not why.isprintable():
            yield f"bars({worker}) gave no plain text of at most {MOST_REASON} characters: {why!r:.200}"
        if isinstance(blocks, bool) or not isinstance(blocks, int | float):
            yield f"blocks({worker}) gave {blocks!r}, not a number"
        elif not (math.isfinite(blocks) and abs(blocks) <= MOST_BLOCKS):
            yield f"blocks({worker}) gave {blocks}, not a finite number of at most {MOST_BLOCKS:.0f} either way"
