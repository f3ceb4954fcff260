"""Rewrites of the API beside those of a file, and the priorities that objectives give."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from discovery.kubernetes.objectives import Objective
from discovery.source import Counts
from picker.core.criteria import Traits
from picker.requests import rewriteobjects
from picker.requests.objectives import Objectives
from picker.requests.rewritefile import WatchedRules
from picker.requests.rewriteobjects import JoinedRules, read_object
from picker.requests.rewriting import Rewrite, RewriteError

T = TypeVar("T")


@dataclass
class Told(Generic[T]):
    """Objects that a test tells."""

    objects: dict[str, T] = field(default_factory=dict)
    number: int = 0
    settled: bool = True
    counts: Counts = field(default_factory=Counts)

    def tell(self, **objects: T) -> None:
        self.objects = objects
        self.number += 1

    def status(self) -> Mapping[str, Any]:
        return {"state": "watching"}

    async def run(self) -> None:
        await asyncio.Event().wait()


def rewrite(
    name: str, target: str, *, pool: str = "mine", day: int = 1, models: tuple[str, ...] = ("m",)
) -> Rewrite:
    return read_object(
        {
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": f"2026-01-{day:02}T00:00:00Z"},
            "spec": {
                "poolRef": {"name": pool, "kind": "InferencePool"},
                "rules": [
                    {
                        "matches": [{"model": {"type": "Exact", "value": model}} for model in models],
                        "targets": [{"modelRewrite": target, "weight": 100}],
                    }
                ],
            },
        }
    )


def target(rules: JoinedRules) -> str | None:
    rule = rules.rules.find("m")
    return None if rule is None else rule.target(0.5)


def joined(file: Path | None, told: Told[Rewrite]) -> JoinedRules:
    return JoinedRules(WatchedRules(file, pool="mine", namespace="n", poll_seconds=0.01), told, pool="mine")


def test_the_older_object_counts_as_they_come_and_go() -> None:
    told: Told[Rewrite] = Told()
    rules = joined(None, told)
    before = rules.digest
    assert target(rules) is None
    told.tell(new=rewrite("new", "second", day=9))
    assert target(rules) == "second"
    told.tell(new=rewrite("new", "second", day=9), old=rewrite("old", "first", day=2))
    assert target(rules) == "first"
    assert rules.digest not in {"", before}
    told.tell()
    assert target(rules) is None
    assert rules.digest == before


def test_objects_of_another_pool_are_left_out() -> None:
    told: Told[Rewrite] = Told()
    told.tell(x=rewrite("x", "other", pool="theirs"))
    assert target(joined(None, told)) is None


def test_replicas_that_heard_objects_in_another_order_agree() -> None:
    here: Told[Rewrite] = Told()
    there: Told[Rewrite] = Told()
    one, two = rewrite("one", "1"), rewrite("two", "2")
    here.tell(one=one, two=two)
    there.tell(two=two, one=one)
    assert joined(None, here).digest == joined(None, there).digest


async def test_a_file_and_objects_are_one_list_of_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "kind: InferenceModelRewrite\nmetadata: {name: f, creationTimestamp: 2026-01-05T00:00:00Z}\n"
        "spec: {rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: of-the-file}]}]}\n"
    )
    told: Told[Rewrite] = Told(settled=False)
    rules = joined(file, told)
    running = asyncio.create_task(rules.run())
    async with asyncio.timeout(30):
        while target(rules) != "of-the-file":  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.01)
    assert not rules.known
    assert rules.digest == ""
    told.settled = True
    assert rules.known
    told.tell(older=rewrite("older", "older", day=1))
    assert target(rules) == "older"
    assert rules.status()["rules"] == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_no_more_rules_are_kept_than_allowed_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriteobjects, "MAX_RULES", 1)
    told: Told[Rewrite] = Told()
    told.tell(one=rewrite("one", "1"), two=rewrite("two", "2"))
    rules = joined(None, told)
    assert len(rules.rules.rules) == 1
    assert "more than 1 rules" in rules.fault


def test_an_object_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(RewriteError, match="targets"):
        read_object({"metadata": {"name": "x"}, "spec": {"rules": [{"targets": []}]}})


def test_objectives_give_priorities_by_name_as_they_come_and_go() -> None:
    told: Told[Objective] = Told()
    objectives = Objectives(told, pool="mine")
    assert objectives.priority("critical") is None
    told.tell(**{"n/critical": Objective("mine", 10), "n/theirs": Objective("theirs", 5)})
    assert objectives.priority("critical") == 10
    assert objectives.priority("theirs") is None
    assert objectives.priority("") is None
    told.tell()
    assert objectives.priority("critical") is None


def test_without_a_source_there_are_no_priorities() -> None:
    assert Objectives().priority("critical") is None
    assert Objectives().status() is None
    assert Traits.__dataclass_fields__["priority"].default is None
