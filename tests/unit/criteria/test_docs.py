"""What docs/criteria.md shows runs as it stands: the criterion, its packaging and its test."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from picker.core.criteria import Setup, Traits, WorkerTraits
from picker.criteria.loading import open_criteria
from picker.criteria.testing import hold_to_contract
from tests.unit.criteria.conftest import Install

PAGE = (Path(__file__).parents[3] / "docs" / "criteria.md").read_text()
BLOCKS: dict[str, str] = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", PAGE, re.DOTALL))


def installed(install: Install) -> None:
    points = tomllib.loads(BLOCKS["pyproject.toml"])["project"]["entry-points"]["picker.criteria"]
    install("tenants", BLOCKS["tenants.py"], **points)


def test_the_documented_criterion_works_once_installed(install: Install) -> None:
    installed(install)
    criteria = open_criteria(["tenants"], Setup())
    workers = [
        WorkerTraits("free:1", waiting=2),
        WorkerTraits("ours:1", labels={"tenants": "red,blue"}),
        WorkerTraits("theirs:1", labels={"tenants": "blue"}),
    ]
    verdict = criteria.weigh(criteria.prepare(Traits(headers={"x-tenant": "red"})), workers)
    assert verdict.barred == {"theirs:1": "tenants: reserved for other tenants"}
    assert verdict.added == {"tenants": {"free:1": 8.0}}
    assert criteria.prepare(Traits()) == ()


def test_the_documented_test_passes(install: Install, tmp_path: Path) -> None:
    installed(install)
    install("test_tenants", BLOCKS["test_tenants.py"])
    importlib.import_module("test_tenants").test_the_contract()


class Bad:
    seam = 1

    def __init__(self, setup: Setup) -> None:
        self.count = 0

    def prepare(self, request: Traits) -> Bad:
        return self

    def blocks(self, worker: WorkerTraits) -> float:
        self.count += 1
        return float(self.count)


def test_the_kit_finds_what_breaks_the_contract() -> None:
    with pytest.raises(AssertionError, match="and then"):
        hold_to_contract(Bad)
    for said, told in (
        (float("nan"), "finite"), ("1", "not a number"), (2.0**21, "at most"), (True, "not a number")
    ):  # fmt: skip
        kind = type("Odd", (Bad,), {"blocks": lambda _self, _worker, said=said: said})
        with pytest.raises(AssertionError, match=told):
            hold_to_contract(kind)
    for why, told in ((None, "not a text"), ("x" * 500, "plain text"), ("a\nb", "plain text")):
        kind = type("Odd", (Bad,), {"bars": lambda _self, _worker, why=why: why, "blocks": lambda *_: 0.0})
        with pytest.raises(AssertionError, match=told):
            hold_to_contract(kind)
    with pytest.raises(AssertionError, match="neither bars nor blocks"):
        hold_to_contract(type("Odd", (Bad,), {"blocks": None, "prepare": lambda *_: object()}))
    with pytest.raises(AssertionError, match="nothing to say"):
        hold_to_contract(type("Odd", (Bad,), {"prepare": lambda *_: None}))
    with pytest.raises(AssertionError, match="seam is 2"):
        hold_to_contract(type("Odd", (Bad,), {"seam": 2}))
