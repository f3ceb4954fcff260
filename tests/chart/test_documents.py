"""What stands beside the templates: made files, alerts, dashboards, permissions, examples, the image's description."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from discovery.workerfile import read_workers
from picker.events.permissions import permissions
from picker.requests.rewritefile import read_rewrites
from tests.chart.rendering import CHART, Objects, helm, render, rendered, settings_from
from tests.chart.schemas import faults
from tests.tools.helm import BIN, PYTHON, ROOT

DASHBOARD = json.loads((CHART / "dashboards" / "picker.json").read_text())
SCRAPED = {"pod", "namespace", "le"}
"""Labels that the scrape or a histogram adds."""


def test_made_files_are_what_settings_and_values_say() -> None:
    """helm-docs stands in `.tools`, so that the README is among them."""
    assert (BIN / "helm-docs").exists()
    done = subprocess.run(
        [sys.executable, "charts/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_value_of_ours_is_explained() -> None:
    rows = re.findall(
        r"^\| ([\w.]+) \| [^|]* \| .*? \| (.*?) \|$", (CHART / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 200
    assert [name for name, text in rows if not text.strip()] == []


def test_the_charts_card_is_complete() -> None:
    card = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{card["appVersion"]}"' in project
    assert card["kubeVersion"]
    assert card["icon"]
    assert card["annotations"]["artifacthub.io/license"] == "Apache-2.0"
    assert yaml.safe_load(card["annotations"]["artifacthub.io/changes"])
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    images = {
        each["name"]: each["image"] for each in yaml.safe_load(card["annotations"]["artifacthub.io/images"])
    }
    assert images == {
        "picker": f"{values['image']['repository']}:{card['appVersion']}",
        "valkey": f"{values['valkey']['image']['repository']}:{values['valkey']['image']['tag']}",
        "nats": f"{values['nats']['image']['repository']}:{values['nats']['image']['tag']}",
    }


def test_the_judge_of_objects_finds_what_is_wrong() -> None:
    pool = render("trial").one("InferencePool")
    deployment = render("trial").one("Deployment", "llama-8b-epp")
    assert list(faults(pool, "1.35")) == list(faults(deployment, "1.35")) == []
    assert list(faults({**pool, "spec": {**pool["spec"], "selektor": {}}}, "1.35"))
    assert list(faults({**pool, "spec": {**pool["spec"], "targetPorts": []}}, "1.35"))
    assert list(faults({**deployment, "spec": {**deployment["spec"], "replcias": 3}}, "1.35"))
    assert list(faults({**deployment, "spec": {**deployment["spec"], "replicas": "three"}}, "1.35"))
    assert list(faults({**pool, "kind": "InferencePond"}, "1.35"))


# alerts and dashboards ask for metrics that exist


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`/metrics` of a real replica."""
    folder = tmp_path_factory.mktemp("replica")
    workers = folder / "workers.json"
    workers.write_text('{"workers": [{"address": "127.0.0.1:1"}]}')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        "PATH": str(Path(sys.executable).parent),
        "PYTHONPATH": str(ROOT),
        "PICKER_WORKERS_FILE": str(workers),
        "PICKER_GRPC_HOST": "127.0.0.1",
        "PICKER_GRPC_PORT": "0",
        "PICKER_GRPC_HEALTH_PORT": "0",
        "PICKER_ADMIN_HOST": "127.0.0.1",
        "PICKER_METRICS_PORT": str(port),
        "PICKER_DRAIN_MIN_SECONDS": "0",
        "PICKER_DRAIN_MAX_SECONDS": "0",
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "picker", "serve"], env=environment, stderr=log, stdout=log
        )
    try:
        yield _fetched(f"http://127.0.0.1:{port}/metrics", process, folder / "log")
    finally:
        process.terminate()
        process.wait(timeout=30)


def _fetched(url: str, process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer: {log.read_text()}")


@pytest.fixture(scope="module")
def metrics(page: str) -> set[str]:
    """Every name on it, and the series of its histograms."""
    found: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        found |= {name} if kind != "histogram" else {f"{name}_{end}" for end in ("bucket", "sum", "count")}
    return found


def _parser() -> Any:
    if str(PYTHON) not in sys.path:
        sys.path.append(str(PYTHON))
    return import_module("promql_parser")


def _asked(query: str) -> set[str]:
    """The metrics that a query names; the query must be PromQL."""
    promql = _parser()
    found: set[str] = set()

    _walk(promql.parse(query), promql, found)
    return found


def _walk(node: Any, promql: Any, found: set[str]) -> None:
    if isinstance(node, promql.VectorSelector):
        found.add(node.name)
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs", "param"):
        below = getattr(node, name, None)
        if isinstance(below, promql.Expr):
            _walk(below, promql, found)
    for below in getattr(node, "args", None) or ():
        _walk(below, promql, found)


def _panel_queries() -> list[str]:
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    return [
        each.replace("$__rate_interval", "5m").replace("$namespace", "n").replace("$release", "r")
        for each in queries
    ]


def _alerts(objects: Objects) -> list[Any]:
    return list(objects.one("PrometheusRule")["spec"]["groups"][0]["rules"])


def _labels(page: str) -> set[str]:
    return {
        label
        for names in re.findall(r"^\w+\{(.*?)\} ", page, re.MULTILINE)
        for label in re.findall(r'(\w+)="', names)
    }


def test_panels_ask_for_metrics_that_a_replica_exports(metrics: set[str]) -> None:
    asked = {name for query in _panel_queries() for name in _asked(query)}
    assert len(asked) > 15
    assert asked - metrics == set()


def test_alerts_ask_for_metrics_that_a_replica_exports(metrics: set[str]) -> None:
    asked = {name for alert in _alerts(render("production")) for name in _asked(alert["expr"])}
    assert len(asked) > 10
    assert asked - metrics == set()


def test_queries_group_by_labels_that_exist(page: str) -> None:
    queries = _panel_queries() + [each["expr"] for each in _alerts(render("production"))]
    grouped = {
        word.strip()
        for query in queries
        for words in re.findall(r"by \(([^)]*)\)", query)
        for word in words.split(",")
    }
    declared = {"result", "code", "reason", "worker", "model"}
    assert grouped <= SCRAPED | declared
    source = (ROOT / "picker" / "admin" / "metrics.py").read_text()
    assert {each for each in declared if f'"{each}"' not in source} == set()


def test_each_alert_is_of_this_release_and_has_a_page() -> None:
    described = (ROOT / "docs" / "alerts.md").read_text()
    sections = set(re.findall(r"^## (\w+)$", described, re.MULTILINE))
    values = {"metrics": {"prometheusRule": {"enabled": True}}}
    alerts = _alerts(rendered(values))
    assert {each["alert"] for each in alerts} == sections
    for each in alerts:
        assert each["annotations"]["runbook_url"] == f"docs/alerts.md#{each['alert'].lower()}"
        assert 'namespace="llama",pod=~"llama-8b-epp-.*"' in each["expr"]
        assert "OURS" not in each["expr"]
        assert each["labels"] == {"severity": each["labels"]["severity"], "pool": "llama/llama-8b"}


def test_an_alert_can_be_left_out() -> None:
    assert "DecisionsSlow" not in {each["alert"] for each in _alerts(render("production"))}


def test_the_dashboard_is_laid_without_overlaps() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


# NATS


def test_permissions_are_those_that_the_picker_itself_writes() -> None:
    data = render("production").one("ConfigMap", "endpoint-picker-nats-permissions")["data"]
    pool = "models/llama-70b"
    assert json.loads(data["replica.json"]) == permissions("replica", pool)
    worker = "10.0.3.7:8000"
    bridge = data["bridge.json"].replace("WORKER", worker.replace(".", "=2E").replace(":", "=3A"))
    assert json.loads(bridge) == permissions("bridge", pool, worker=worker)


def test_a_pool_with_dots_in_its_name_has_the_same_token() -> None:
    data = rendered({"pool": {"name": "llama-3.1-8b"}}).one("ConfigMap", "llama-8b-epp-nats-permissions")[
        "data"
    ]
    assert json.loads(data["replica.json"]) == permissions("replica", "llama/llama-3.1-8b")


# the bridge


def test_the_sidecar_is_a_container_that_kubernetes_takes_and_the_bridge_understands() -> None:
    objects = render("production")
    data = objects.one("ConfigMap", "endpoint-picker-sidecar")
    assert data["metadata"]["namespace"] == "models"
    pod = yaml.safe_load(data["data"]["pod.yaml"])
    whole = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "engine"},
        "spec": pod["spec"] | {"containers": [{"name": "engine", "image": "x"}]},
    }
    assert list(faults(whole, "1.35")) == []
    (bridge,) = pod["spec"]["initContainers"]
    assert bridge["restartPolicy"] == "Always"
    assert bridge["args"] == ["bridge"]
    said = {
        each["name"]: each.get("value", "nats://x")
        for each in bridge["env"]
        if each["name"].startswith("PICKER_")
    }
    said |= objects.one("ConfigMap", "endpoint-picker-bridge")["data"]
    read = settings_from(said)
    assert read.pool.pool == "models/llama-70b"
    assert read.price.block_size == 64
    assert read.bridge.bridge_worker == "$(POD_IP):8000"
    assert read.bridge.bridge_events == "ipc:///var/run/picker/events.ipc"
    assert read.events.nats_nkey_file == Path("/etc/picker/nats/seed")


def test_the_engine_is_told_the_socket_that_the_bridge_reads() -> None:
    objects = render("trial")
    argument = objects.one("ConfigMap", "llama-8b-epp-sidecar")["data"]["engine-arguments.txt"]
    told = json.loads(argument.partition("=")[2])
    read = objects.one("ConfigMap", "llama-8b-epp-bridge")["data"]
    assert told["endpoint"] == read["PICKER_BRIDGE_EVENTS"]
    assert told["replay_endpoint"] == read["PICKER_BRIDGE_REPLAY"]
    assert told["enable_kv_cache_events"] is True


# workers from a list, model rewrites


def test_a_list_of_workers_is_a_file_that_the_picker_reads() -> None:
    objects = render("without-rights")
    text = objects.one("ConfigMap", "llama-8b-epp-workers")["data"]["workers.json"]
    assert {each.address for each in read_workers(text)} == {"10.0.3.7:8000", "10.0.3.8:8000"}
    assert objects.environment["PICKER_WORKERS_FILE"] == "/etc/picker/workers/workers.json"
    assert {"name": "workers", "mountPath": "/etc/picker/workers", "readOnly": True} in objects.picker[
        "volumeMounts"
    ]


def test_rewrites_are_a_file_that_the_picker_reads() -> None:
    text = render("pod-template").one("ConfigMap", "llama-8b-epp-rewrites")["data"]["rewrites.yaml"]
    (rewrite,) = read_rewrites(text, pool="llama-8b", namespace="llama")
    assert [target.model for target in rewrite.rules[0].targets] == ["chat-v1", "chat-v2"]


def test_the_argo_cd_example_holds_values_that_render() -> None:
    example = yaml.safe_load((CHART / "examples" / "argocd-application.yaml").read_text())
    source = example["spec"]["source"]
    card = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (source["chart"], source["targetRevision"]) == (card["name"], card["version"])
    objects = rendered(source["helm"]["valuesObject"])
    assert objects.one("Deployment", "llama-8b-epp")["spec"]["replicas"] == 3
    assert objects.of("EnvoyExtensionPolicy")
    assert not objects.of("Pod")


def test_a_package_of_the_chart_holds_what_templates_read_and_no_test_values(tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as package:
        names = set(package.getnames())
    assert {
        "picker/files/settings.json",
        "picker/files/alerts.yaml",
        "picker/dashboards/picker.json",
    } <= names
    assert not any(name.startswith("picker/ci") for name in names)
