"""The chaos suite against a release, as its operator runs it: with the rights of the documentation, and no others."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.cluster.running import ClusterError, Running
from tests.kubernetes.cluster.trial import ADMIN_TOKEN, Trial

PAGE: Final = Path(__file__).parents[2] / "docs" / "chaos.md"
ACCOUNT: Final = "picker-chaos"
PLAY_SECONDS: Final = 600
CHANGES: Final = {"create", "delete", "patch", "update", "deletecollection"}


@pytest.fixture(scope="module")
def runner(
    cluster: Running, installed: Trial, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """The command, with a kubeconfig of the ServiceAccount that the documentation makes."""
    folder = tmp_path_factory.mktemp("chaos")
    namespace = installed.release.namespace
    cluster.apply(*rights(namespace))
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", namespace, "--duration=1h").strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    (folder / "token").write_text(ADMIN_TOKEN)
    yield [
        str(Path(sys.executable).with_name("picker")), "chaos", "run", "--target", "kube",
        "--kubeconfig", str(folder / "kubeconfig"), "--admin-token-file", str(folder / "token"),
        "--namespace", namespace, "--release", installed.release.name, "--gateway", installed.gateway.url(),
    ]  # fmt: skip
    installed.release.settled()


def rights(namespace: str) -> list[dict[str, Any]]:
    """The objects of the documentation's block, in a namespace."""
    text = PAGE.read_text().partition("### Rights of the runner")[2]
    found = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return [
        each
        for each in yaml.safe_load_all(found[1].replace("namespace: llama", f"namespace: {namespace}"))
        if each
    ]


def played(cluster: Running, runner: list[str], report: Path, *words: str) -> dict[str, Any]:
    """Run it; what it says is in the failure, should there be one."""
    try:
        cluster.run(*runner, "--report", str(report), *words, seconds=PLAY_SECONDS)
    except ClusterError as error:
        pytest.fail(str(error))
    verdict: dict[str, Any] = json.loads((report / "verdict.json").read_text())
    return verdict


def calls(cluster: Running, namespace: str) -> list[dict[str, Any]]:
    """What the runner asked of the API server."""
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    return [each for each in cluster.audit() if each["user"]["username"] == account]


@pytest.mark.timeout(PLAY_SECONDS + 300)
@pytest.mark.parametrize("scenario", ["replica_killed_in_a_burst", "rolling_restart_under_load"])
def test_a_release_stands_the_scenario_and_nothing_but_its_pods_is_touched(
    cluster: Running, installed: Trial, runner: list[str], tmp_path: Path, scenario: str
) -> None:
    before = len(calls(cluster, installed.release.namespace))
    told = played(cluster, runner, tmp_path / "report", "--suite", "release", "-k", scenario)
    assert told["verdict"] == "pass"
    (one,) = told["scenarios"]
    verdicts = {each["name"]: each["verdict"] for each in one["findings"]}
    assert {"fail", "unknown"}.isdisjoint(verdicts.values())
    assert [name for name, verdict in verdicts.items() if verdict == "not applicable"] == [
        "the plane's own sums are the sums of the bookings that it holds"
    ], "simulated engines tell the truth"
    target = told["target"]
    assert (target["release"], target["kind"]) == (installed.release.name, "kube")
    assert target["cluster"].startswith("v1.")
    assert target["chart"].startswith("picker-")
    mine = calls(cluster, installed.release.namespace)[before:]
    changed = [each["objectRef"] for each in mine if each["verb"] in CHANGES and "objectRef" in each]
    touched = {(each["resource"], each.get("name", "")) for each in changed}
    touched -= {("selfsubjectaccessreviews", "")}
    assert touched
    assert all(
        kind == "pods" and name.startswith(f"{installed.release.objects}-") for kind, name in touched
    ), touched
    denied = [
        each for each in mine if each.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
    ]
    assert not denied, json.dumps(denied[0], indent=1)


def test_a_dry_run_changes_nothing(cluster: Running, installed: Trial, runner: list[str]) -> None:
    before = len(calls(cluster, installed.release.namespace))
    said = cluster.run(*runner, "--suite", "release", "--dry-run")
    assert f"patch deployments/scale {installed.release.objects} (5 replicas)" in said
    mine = calls(cluster, installed.release.namespace)[before:]
    asked = [each for each in mine if each.get("objectRef", {}).get("resource") != "selfsubjectaccessreviews"]
    assert {each["verb"] for each in asked} == {"get", "list"}


def test_a_release_that_is_not_there_is_said_by_name(
    cluster: Running, runner: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match="release nobody in namespace"):
        cluster.run(*runner, "--report", str(tmp_path / "report"), "--release", "nobody")
