"""Every duty of ours, once, with real messages through an exchange; and the table of duties held to itself."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from tests.transcripts.cases import CASES
from tests.unit.serving.rows import cases, headers, reading, refusals, requests, responses, streams
from tests.unit.serving.rows.duties import CHAPTERS, DUTIES, RECORDED, ROWS, Duty
from tests.unit.serving.rows.page import page
from tests.unit.serving.rows.shared import CHECKS

ROOT = Path(__file__).resolve().parents[4]
CHAPTERS_CHECKED = (streams, requests, responses, headers, refusals, reading, cases)
"""Modules whose checks are registered by being imported."""


@pytest.mark.parametrize(
    "duty", [duty for duty in DUTIES if duty.ours and duty.own], ids=lambda duty: duty.id
)
async def test_a_duty_is_kept(duty: Duty) -> None:
    kept = CHECKS[duty.id]()
    if inspect.isawaitable(kept):
        await kept


@cache
def functions(path: str) -> frozenset[str]:
    """The names of the test functions in a file."""
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize("duty", DUTIES, ids=lambda duty: duty.id)
def test_every_test_that_a_duty_names_exists(duty: Duty) -> None:
    for node in (*duty.message, *duty.envoy):
        path, _, name = node.partition("::")
        name, _, parameter = name.partition("[")
        assert name in functions(path), node
        if node.startswith(ROWS):
            assert parameter.rstrip("]") in CHECKS, node
        if node.startswith(RECORDED):
            assert parameter.rstrip("]") in {case.name for case in CASES}, node


def test_every_duty_is_shown_at_both_levels_or_says_why_not() -> None:
    assert len({duty.id for duty in DUTIES}) == len(DUTIES)
    for duty in DUTIES:
        assert duty.id.rpartition("-")[0] in CHAPTERS
        assert duty.envoy or duty.reason, duty.id
        assert duty.ours or duty.reason, duty.id
        assert bool(duty.message) == duty.ours, duty.id
    assert CHECKS.keys() == {duty.id for duty in DUTIES if duty.ours and duty.own}


def test_the_page_names_every_duty() -> None:
    assert re.findall(r"^\| (\d\S*) \|", page(), re.MULTILINE) == [duty.id for duty in DUTIES]
