"""What the status page tells of adapters and criteria, of a replica that is wired and not running."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.found import Endpoint
from picker import settings
from picker.app import Replica
from picker.core.load import Report
from picker.workers.adapters import Models

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    given = settings.load(
        {}, workers_file=tmp_path / "workers", loras="fixed", criteria="labels", label_affinity="x-zone=zone"
    )
    made = Replica(given)
    yield made
    made.tokens.close()
    made.metrics.close()


async def test_adapters_are_told_per_worker_and_source_and_criteria_by_name(replica: Replica) -> None:
    registry, now = replica.registry, replica._clock()
    registry.update([Endpoint(A, 0, {"loras": "b,a"}), Endpoint(B)])
    registry.listed(B, Models({"sql": "m"}, frozenset({"m"}), frozenset({"sql"})))
    registry.heard(B, {0: Report(now, now, 0, 0, loras=frozenset({"run"}), max_loras=2)})
    shown = json.loads(json.dumps(replica.status.shown(), default=str))
    told = {worker["name"]: worker["adapters"] for worker in shown["workers"]}
    assert told[A] == {"labels": ["a", "b"], "listed": None, "running": None, "most_running": None}
    assert told[B] == {"labels": None, "listed": ["sql"], "running": ["run"], "most_running": 2}
    assert shown["adapters"] == {"known": 5, "forgotten": 0}
    [criterion] = shown["criteria"]
    assert criterion == {"name": "labels", "failed": 0, "refused": 0, "clamped": 0, "seconds": 0.0}


async def test_what_criteria_and_lists_of_models_do_is_exported(replica: Replica) -> None:
    page = replica.metrics.page().decode()
    assert 'picker_criteria_failed_total{reason="labels"} 0.0' in page
    assert "picker_models_asked_total 0.0" in page


async def test_criteria_see_labels_adapters_and_fresh_reports_of_workers(replica: Replica) -> None:
    registry, now = replica.registry, replica._clock()
    registry.update([Endpoint(f"{A}", 3, {"zone": "eu"})])
    before = replica.pool.traits(f"{A}@3", now)
    assert (before.address, before.rank, before.labels["zone"], before.running) == (A, 3, "eu", None)
    registry.heard(A, {3: Report(now, now, 4, 2, kv_usage=0.5, loras=frozenset({"run"}))})
    fresh = replica.pool.traits(f"{A}@3", now)
    assert (fresh.running, fresh.waiting, fresh.kv_usage, fresh.loras) == (4, 2, 0.5, frozenset({"run"}))
    assert replica.pool.traits(f"{A}@3", now) is fresh, "made once per report"
    stale = replica.pool.traits(f"{A}@3", now + 60)
    assert (stale.running, stale.loras) == (None, frozenset())
    registry.update([Endpoint(A, 3, {"zone": "us"})])
    assert replica.pool.traits(f"{A}@3", now).labels["zone"] == "us"
    with pytest.raises(TypeError):
        stale.labels["zone"] = "x"  # type: ignore[index]
