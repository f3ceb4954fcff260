"""A replica that looks where its processor time goes: ``python -m picker.bench.decide.sampled FILE serve``.

Every few milliseconds of the process's own processor time the stack of its main thread is looked at. SIGUSR1 begins
anew; SIGUSR2 ends and writes how often each module was the innermost one of ours, as JSON, into FILE.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_SECONDS = 0.002
OURS = ("picker.", "stateplane.", "discovery.")
LOOP = "asyncio"
"""No module of ours was at work: the event loop itself, and the kernel under it."""
WAITING = "waiting"
"""The main thread waited: another thread was at work."""


class Sampler:
    """Looks, and counts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._counts: Counter[str] = Counter()

    def begin(self, *_: object) -> None:
        """Forget what was counted, and look from now on."""
        self._counts.clear()
        signal.setitimer(signal.ITIMER_PROF, EVERY_SECONDS, EVERY_SECONDS)

    def end(self, *_: object) -> None:
        """Look no more, and write what was counted, in one step."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(self._counts), encoding="utf-8")
        draft.replace(self._file)

    def look(self, _: int, frame: FrameType | None) -> None:
        """One look."""
        self._counts[innermost(frame)] += 1


def innermost(frame: FrameType | None) -> str:
    """The innermost module of ours on a stack; `LOOP` or `WAITING` where there is none."""
    if frame is not None and frame.f_code.co_name == "select":
        return WAITING
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if name.startswith(OURS) and not name.startswith(("picker.bench", "picker.cli", "picker.app")):
            return name
        frame = frame.f_back
    return LOOP


def main() -> None:
    """Prepare to look, then be the picker."""
    sampler = Sampler(Path(sys.argv[1]))
    signal.signal(signal.SIGPROF, sampler.look)
    signal.signal(signal.SIGUSR1, sampler.begin)
    signal.signal(signal.SIGUSR2, sampler.end)
    sys.argv = ["picker", *sys.argv[2:]]
    runpy.run_module("picker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
