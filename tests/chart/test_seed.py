"""A deployment that people run, its facts written down here, against what its values file renders.

The facts: one picker for pool `llama-8b` in namespace `llama` behind Envoy Gateway; its arguments and ports; probes on
the health port; a scrape every 15 s; what it may read of the API server; who may reach whom; how bodies are shown.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.flows import End, may
from tests.chart.rendering import Objects, render

POOL, NAMESPACE, EPP, ROUTE = "llama-8b", "llama", "llama-8b-epp", "vllm"
MODEL_LABELS = {"app.kubernetes.io/name": "llama-8b", "app.kubernetes.io/instance": "llama"}
ARGUMENTS = {
    "--pool-name=llama-8b",
    "--pool-namespace=llama",
    "--grpc-port=9002",
    "--grpc-health-port=9003",
    "--metrics-port=9090",
    "--kv-cache-usage-percentage-metric=vllm:gpu_cache_usage_perc",
}
READ = {"get", "list", "watch"}
RIGHTS: dict[tuple[str, str], set[str]] = {
    ("", "pods"): READ,
    ("discovery.k8s.io", "endpointslices"): READ,
    ("inference.networking.k8s.io", "inferencepools"): READ,
    ("inference.networking.x-k8s.io", "inferencepools"): READ,
    ("inference.networking.x-k8s.io", "inferenceobjectives"): READ,
    ("llm-d.ai", "inferenceobjectives"): READ,
    ("inference.networking.x-k8s.io", "inferencemodelrewrites"): READ,
    ("llm-d.ai", "inferencemodelrewrites"): READ,
    ("inference.networking.x-k8s.io", "inferencepoolimports"): READ,
    ("authentication.k8s.io", "tokenreviews"): {"create"},
    ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
}
"""By API group and resource: every place where a kind is looked for. Where the deployment grants more, nothing of it is
used: `services` (peers are read from EndpointSlices), `httproutes` (the gateway names a request's route to the picker),
`inferencemodels` (gone from the API), EndpointSlices in the core group (they are not in it), and the experimental kinds
in the stable group (they are not in that one either)."""
UNUSED = {
    ("", "services"),
    ("", "endpointslices"),
    ("gateway.networking.k8s.io", "httproutes"),
    ("inference.networking.k8s.io", "inferencemodels"),
    ("inference.networking.k8s.io", "inferenceobjectives"),
    ("inference.networking.k8s.io", "inferencemodelrewrites"),
    ("inference.networking.k8s.io", "inferencepoolimports"),
}


@pytest.fixture(scope="module")
def seed() -> Objects:
    return render("seed")


def test_names_and_namespace_are_the_deployments_own(seed: Objects) -> None:
    assert seed.name == EPP
    assert seed.one("Service", EPP)["metadata"]["namespace"] == NAMESPACE
    assert {each["metadata"]["namespace"] for each in seed.all if "namespace" in each["metadata"]} == {
        NAMESPACE
    }


def test_arguments(seed: Objects) -> None:
    first, *flags = seed.picker["args"]
    assert first == "serve"
    assert set(flags) == ARGUMENTS


def test_ports_and_probes(seed: Objects) -> None:
    numbers = {each["name"]: each["containerPort"] for each in seed.picker["ports"]}
    assert {"grpc-ext-proc": 9002, "grpc-health": 9003, "http-metrics": 9090}.items() <= numbers.items()
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert seed.picker[probe]["grpc"]["port"] == 9003
    service = {each["name"]: each["port"] for each in seed.one("Service", EPP)["spec"]["ports"]}
    assert {"grpc-ext-proc": 9002, "http-metrics": 9090}.items() <= service.items()


def test_resources(seed: Objects) -> None:
    assert seed.picker["resources"] == {
        "requests": {"cpu": "200m", "memory": "256Mi"},
        "limits": {"memory": "512Mi"},
    }


def test_the_pool_names_model_servers_and_picker(seed: Objects) -> None:
    pool = seed.one("InferencePool", POOL)
    assert pool["spec"]["selector"]["matchLabels"] == MODEL_LABELS
    assert pool["spec"]["targetPorts"] == [{"number": 8000}]
    picker = pool["spec"]["endpointPickerRef"]
    assert (picker["name"], picker["port"]["number"]) == (EPP, 9002)


def test_the_extension_policy_shows_bodies_as_the_deployment_does(seed: Objects) -> None:
    policy = seed.one("EnvoyExtensionPolicy", "vllm-epp")["spec"]
    assert policy["targetRefs"] == [
        {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": ROUTE}
    ]
    (processor,) = policy["extProc"]
    assert processor["backendRefs"] == [{"group": "", "kind": "Service", "name": EPP, "port": 9002}]
    mode = processor["processingMode"]
    assert (mode["request"]["body"], mode["response"]["body"]) == ("Buffered", "Streamed")


def test_metrics_are_scraped_every_fifteen_seconds(seed: Objects) -> None:
    (endpoint,) = seed.one("ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("http-metrics", "/metrics", "15s")
    wanted = seed.one("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    found = [each for each in seed.of("Service") if wanted.items() <= each["metadata"]["labels"].items()]
    assert [each["metadata"]["name"] for each in found] == [EPP]


def _granted(seed: Objects) -> dict[tuple[str, str], set[str]]:
    granted: dict[tuple[str, str], set[str]] = {}
    bound = {
        each["roleRef"]["name"]: each
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for each in seed.of(kind)
    }
    for kind in ("Role", "ClusterRole"):
        for role in seed.of(kind):
            if role["metadata"]["name"] not in bound:
                continue
            (subject,) = bound[role["metadata"]["name"]]["subjects"]
            assert subject["name"] == seed.pod["spec"]["serviceAccountName"]
            for rule in role["rules"]:
                for group in rule.get("apiGroups", []):
                    for resource in rule["resources"]:
                        granted.setdefault((group, resource), set()).update(rule["verbs"])
    return granted


def test_rights_are_what_is_used_and_no_more(seed: Objects) -> None:
    granted = _granted(seed)
    assert granted == RIGHTS
    assert not UNUSED & set(granted)


def test_what_can_be_granted_in_a_namespace_is_not_granted_in_all(seed: Objects) -> None:
    everywhere = {(group, name) for each in seed.of("ClusterRole") for rule in each["rules"]
                  for group in rule.get("apiGroups", []) for name in rule.get("resources", [])}  # fmt: skip
    assert everywhere == {
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    }


def _ends(seed: Objects) -> dict[str, End]:
    labels: dict[str, Any] = dict(seed.pod["metadata"]["labels"])
    return {
        "picker": End("picker", NAMESPACE, labels),
        "model": End("model", NAMESPACE, MODEL_LABELS),
        "envoy": End("envoy", "envoy-gateway-system", {"app": "envoy"}),
        "prometheus": End("prometheus", "monitoring", {"app": "prometheus"}),
        "dns": End("dns", "kube-system", {"k8s-app": "kube-dns"}),
        "api server": End("api server", address="10.96.0.1"),
        "stranger": End("stranger", "default", {"app": "shell"}),
    }


FLOWS = (
    ("envoy", "picker", 9002, "TCP", True),
    ("envoy", "picker", 9003, "TCP", True),
    ("envoy", "picker", 9090, "TCP", False),
    ("prometheus", "picker", 9090, "TCP", True),
    ("prometheus", "picker", 9002, "TCP", False),
    ("stranger", "picker", 9002, "TCP", False),
    ("stranger", "picker", 9090, "TCP", False),
    ("picker", "dns", 53, "UDP", True),
    ("picker", "dns", 53, "TCP", True),
    ("picker", "api server", 443, "TCP", True),
    ("picker", "api server", 6443, "TCP", True),
    ("picker", "api server", 22, "TCP", False),
    ("picker", "model", 8000, "TCP", True),
    ("picker", "model", 22, "TCP", False),
    ("picker", "stranger", 8000, "TCP", False),
    ("envoy", "model", 8000, "TCP", True),
    ("stranger", "model", 8000, "TCP", False),
)


@pytest.mark.parametrize(("source", "target", "port", "protocol", "allowed"), FLOWS)
def test_flows(seed: Objects, source: str, target: str, port: int, protocol: str, allowed: bool) -> None:
    ends = _ends(seed)
    assert may(seed.of("NetworkPolicy"), ends[source], ends[target], port, protocol) is allowed


def test_the_policy_for_scrapes_has_its_name(seed: Objects) -> None:
    policy = seed.one("NetworkPolicy", "allow-epp-scrape")
    assert policy["spec"]["podSelector"]["matchLabels"] == MODEL_LABELS
    assert policy["spec"]["policyTypes"] == ["Ingress"]
