"""Time on a shared machine: CPU time of this thread, a calibration to compare machines by, percentiles."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

_ROUNDS = 50_000


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least ``share`` (0..1) of them do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of nothing was asked for: the bench has measured no value")
    ranked = sorted(values)
    return ranked[max(-(-round(share * len(ranked) * 1e6) // 1_000_000) - 1, 0)]


def cpu_us(call: Callable[[], object]) -> float:
    """Microseconds of this thread's CPU time that the call took, reading the clock included (see `clock_us`)."""
    begun = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - begun) / 1e3


def wall_us(call: Callable[[], object]) -> float:
    """Microseconds that the call took by the wall: for code that works in threads of its own."""
    begun = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begun) / 1e3


def clock_us(clock: Callable[[Callable[[], object]], float] = cpu_us) -> float:
    """What one of the clocks above shows for a call that does nothing: to be taken off short measurements."""
    return median(clock(_nothing) for _ in range(2_001))


def calibration_ns() -> float:
    """CPU time of one round of a fixed piece of dictionary and integer work: the unit to compare two machines in."""
    return median(_calibrate() for _ in range(7)) / _ROUNDS


def _calibrate() -> int:
    table = dict.fromkeys(range(1024), 1)
    value = 0
    begun = time.thread_time_ns()
    for number in range(_ROUNDS):
        value ^= table[number & 1023] + number
    took = time.thread_time_ns() - begun
    assert value >= 0, "the work is used, so that it is done"
    return took


def process_cpu_ns(pid: int) -> int:
    """CPU time that another process's living threads have taken since their start, in nanoseconds.

    Raises:
        FileNotFoundError: there is no such process.
    """
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended between two looks
    return total


def process_rss_bytes(pid: int) -> int:
    """Memory of another process that is in use now.

    Raises:
        FileNotFoundError: there is no such process.
    """
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def resident_bytes() -> int:
    """Memory of this process that is in use, garbage collected first."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _nothing() -> None:
    return None
