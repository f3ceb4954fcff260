"""Every values file of charts/picker/ci: it renders, is valid, and is what its golden file says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, RELEASE, SCENARIOS, HelmError, Objects, helm, notes, text
from tests.chart.schemas import OWN_GROUPS, definitions, faults, group_of

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = ("1.29", "1.35", "1.37")
"""The oldest version that Chart.yaml promises, the one rendered for, the newest with schemas."""


CUSTOM = {
    "InferencePool", "HTTPRoute", "ReferenceGrant", "BackendTLSPolicy",
    "EnvoyExtensionPolicy", "BackendTrafficPolicy", "EnvoyProxy", "EnvoyPatchPolicy", "ClientTrafficPolicy",
    "DestinationRule", "Telemetry", "ServiceMonitor", "PodMonitor", "PrometheusRule",
}  # fmt: skip


def _golden(rendered: str) -> str:
    """The render without what other files hold already, and without blanks at the ends of lines."""
    short = re.sub(
        r"(  picker\.json: \|\n)(?:    .*\n|\n)+", r"\1    (charts/picker/dashboards/picker.json)\n", rendered
    )
    return re.sub(r"[ \t]+\n", "\n", short)


def test_a_scenario_equals_its_golden_file(scenario: str, update: bool) -> None:
    shown = _golden(text(SCENARIOS[scenario])) + "# notes\n" + notes(SCENARIOS[scenario])
    path = GOLDEN / f"{scenario}.yaml"
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    assert path.exists(), "no golden file: `pytest tests/chart --update`"
    assert shown == path.read_text(), (
        "another render; if it is meant, `pytest tests/chart --update` and read the diff"
    )


def test_no_golden_file_is_left_of_a_scenario_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(SCENARIOS)


@pytest.mark.parametrize("kubernetes", VERSIONS)
def test_every_object_is_valid_to_its_last_field(scenario: str, objects: Objects, kubernetes: str) -> None:
    ours = [each for each in objects.all if kubernetes == "1.35" or group_of(each) in OWN_GROUPS]
    assert [fault for each in ours for fault in faults(each, kubernetes)] == []


def test_lint_finds_nothing(scenario: str) -> None:
    said = helm("lint", "--strict", str(CHART), "--namespace", RELEASE, "--values", str(SCENARIOS[scenario]))
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert "[WARNING]" not in said


def test_an_older_kubernetes_than_promised_is_refused() -> None:
    oldest = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    assert oldest == f">={VERSIONS[0]}.0-0"
    with pytest.raises(HelmError, match="incompatible with Kubernetes"):
        text(None, kubernetes="1.28.9")


def test_every_custom_kind_is_judged_by_its_own_definition() -> None:
    assert {kind for _, _, kind in definitions()} >= CUSTOM


def test_no_object_is_rendered_twice(objects: Objects) -> None:
    named = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects.all
    ]
    assert len(named) == len(set(named))


def test_the_scenarios_together_render_every_template() -> None:
    seen = {
        name
        for path in SCENARIOS.values()
        for name in re.findall(r"# Source: picker/templates/(\S+)", text(path))
    }
    there = {str(path.relative_to(CHART / "templates")) for path in (CHART / "templates").rglob("*.yaml")}
    assert seen == there
