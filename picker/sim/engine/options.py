"""Everything that one simulated engine is told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from picker.sim.engine.scheduler import Pace
from picker.sim.model import DIRECTORY, MODEL

MetricNames = Literal["old", "new", "both"]


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults make a small engine that answers fast; times are in seconds, sizes in tokens or blocks."""

    host: str = "127.0.0.1"
    port: int = 0
    name: str = "engine"
    """Told in the response header `x-sim-worker` and on the debug pages."""
    model: str = MODEL
    model_dir: Path = DIRECTORY
    loras: tuple[str, ...] = ()
    block_size: int = 16
    blocks: int = 4096
    max_model_len: int = 32_768
    max_waiting: int = 4096
    """Longest queue; a request past it is answered with 503."""
    pace: Pace = field(default_factory=Pace)
    time_scale: float = 1.0
    """How many simulated seconds pass in a real one."""
    rank: int = 0
    """Data-parallel rank: the `engine` label and the rank in KV batches."""
    metric_names: MetricNames = "new"
    abort_on_disconnect: bool = True
    abort_delay: float = 0.0
    """How long after a client left the engine notices."""
    dialect: str = "vllm-map-0.26"
    kv_events: str = ""
    """Where KV events are published, `tcp://127.0.0.1:PORT` (0: any) or `ipc://PATH`; empty: not at all."""
    kv_replay: str = ""
    kv_topic: str = "kv-events"
    kv_keep_batches: int = 10_000
    kv_replay_end: bool = True
    kv_raw_hashes: bool = False
    clear_waits: bool = False
    """A dropped cache is announced with the next step only, as real engines do; False announces it at once."""
