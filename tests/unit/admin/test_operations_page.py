"""docs/operations.md names metrics, settings, places in the status, values of the chart, alerts: each exists."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from picker import settings
from picker.app import Replica
from picker.cli import COMMANDS
from picker.serving.seam import HttpRequest, Picked

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
WORDS = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", PAGE, flags=re.MULTILINE | re.DOTALL))
VALUES = yaml.safe_load((ROOT / "charts" / "picker" / "values.yaml").read_text())
ALERTS = [
    each["alert"]
    for each in yaml.safe_load((ROOT / "charts" / "picker" / "files" / "alerts.yaml").read_text())
]
DOTTED = re.compile(r"[a-z]\w*(\[\])?(\.[a-z]\w*(\[\])?)+")


@dataclass(frozen=True)
class Endpoint:
    address: str = "10.0.0.1:8000"
    rank: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    """One with everything switched on, that nobody started."""
    given = settings.load(
        {},
        kubeconfig=tmp_path / "kubeconfig",
        worker_source="kubernetes",
        metrics_protection="kubernetes",
        api_objects="inferenceobjectives,inferencemodelrewrites,inferencepoolimports",
        nats_url="nats://127.0.0.1:1",
        approximate=True,
        tenant_header="x-tenant",
    )
    made = Replica(given)
    made.registry.update([Endpoint()])
    yield made
    made.metrics.close()
    made.tokens.close()


@pytest.fixture
async def exported(replica: Replica) -> set[str]:
    """Every name on `/metrics`, with those of histograms' series."""
    page = replica.metrics.page().decode()
    return {
        name + end
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE)
        for end in (("", "_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }


def named(pattern: str, text: str = PAGE) -> set[str]:
    found = set(re.findall(pattern, text))
    assert found
    return found


def test_every_metric_is_exported(exported: set[str]) -> None:
    metrics = named(r"\b((?:endpoint_picker|picker|process)_[a-z0-9_]+(?:\*[a-z_]*)?)")
    for metric in metrics - exported:
        assert "*" in metric, metric
        start, _, end = metric.partition("*")
        assert any(name.startswith(start) and name.endswith(end) for name in exported), metric
    assert len(metrics) > 40


def test_every_setting_exists() -> None:
    names = named(r"\b(PICKER_[A-Z0-9_]+)")
    assert names - set(settings.known_names()) == set()
    assert len(names) > 15


def test_every_command_exists() -> None:
    assert named(r"`picker ([a-z]+)") <= set(COMMANDS)


def _held(tree: Any, path: str) -> bool:
    """Whether the tree has that place; below what is null or empty now anything may be."""
    for part in path.split("."):
        if not tree:
            return True
        if not isinstance(tree, Mapping) or part.removesuffix("[]") not in tree:
            return False
        tree = tree[part.removesuffix("[]")]
        if part.endswith("[]"):
            assert isinstance(tree, list)
            tree = tree[0] if tree else None
    return True


async def test_every_place_is_one_of_the_status_or_of_the_charts_values(replica: Replica) -> None:
    status = replica.status.shown()
    places = {word for word in (each.partition("=")[0] for each in WORDS) if DOTTED.fullmatch(word)}
    files = {place for place in places if place.endswith((".md", ".json", ".yaml"))}
    missing = {place for place in places - files if not _held(status, place) and not _held(VALUES, place)}
    assert missing == set()
    assert sum(_held(status, place) for place in places - files) > 15


async def test_the_parts_of_a_decision_that_are_named_are_there(replica: Replica) -> None:
    answer = await replica.picking.decide(HttpRequest({":path": "/v1/other", ":method": "GET"}, None))
    assert isinstance(answer, Picked)
    (why,) = replica.journal.why(answer.booking_id)
    (candidate,) = why["candidates"]
    status = replica.status.shown()
    parts = {word for word in WORDS if word in ("left_out", "cached_tokens", "booked", "unbooked")}
    assert parts == {"left_out", "cached_tokens", "booked", "unbooked"}
    assert parts <= candidate.keys()
    assert {"decision_ms", "route", "tenant", "chosen", "candidates", "worker"} <= why.keys()
    assert "decision_ms" in WORDS
    assert "reported" in status["workers"][0]


def test_every_alert_is_in_the_table_and_links_to_its_section() -> None:
    linked = re.findall(r"^\| \[(\w+)\]\(alerts\.md#(\w+)\)", PAGE, re.MULTILINE)
    assert [name for name, _ in linked] == ALERTS
    sections = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE))
    for name, anchor in linked:
        assert name in sections
        assert anchor == name.lower()


def _anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    "page", ["operations.md", "install.md", "discovery.md", "criteria.md", "alerts.md", "limits.md"]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = ROOT / "docs" / name if name else ROOT / "docs" / page
        assert path.exists(), target
        assert not anchor or anchor in _anchors(path.read_text()), target
