"""Who reaches whom, over every scenario: a matrix of ends, ports and the answer."""

from __future__ import annotations

import pytest

from tests.chart.flows import End, may
from tests.chart.rendering import NAMESPACE, RELEASE, Objects, render

OURS = {"app.kubernetes.io/name": "picker", "app.kubernetes.io/instance": RELEASE}
REPLICA = {"app.kubernetes.io/component": "picker"}
PARTS = {
    part: End(part, NAMESPACE, OURS | {"app.kubernetes.io/component": part})
    for part in ("picker", "valkey", "nats", "check")
}
OTHERS = {
    "another release": End("other", NAMESPACE, OURS | REPLICA | {"app.kubernetes.io/instance": "other"}),
    "our labels elsewhere": End("mock", "default", OURS | {"app.kubernetes.io/component": "picker"}),
    "model": End("model", NAMESPACE, {"app": "llama-8b"}),
    "model elsewhere": End("model", "models", {"app": "llama-70b"}),
    "envoy": End("envoy", "envoy-gateway-system", {"app": "envoy"}),
    "edge": End("edge", "edge", {"app": "envoy"}),
    "edge's neighbour": End("neighbour", "edge", {"app": "shell"}),
    "istio": End("istio", NAMESPACE, {"gateway.networking.k8s.io/gateway-name": "edge"}),
    "prometheus": End("prometheus", "monitoring", {"app": "prometheus"}),
    "dns": End("dns", "kube-system", {"k8s-app": "kube-dns"}),
    "api server": End("api server", address="10.96.0.1"),
    "internet": End("internet", address="198.51.100.7"),
    "data's valkey": End("valkey", "data", {"app": "valkey"}),
    "data's nats": End("nats", "data", {"app": "nats"}),
    "data's shell": End("shell", "data", {"app": "shell"}),
    "stranger": End("stranger", "default", {"app": "shell"}),
}  # fmt: skip
ENDS = PARTS | OTHERS

ALLOWED: dict[str, set[tuple[str, str, int]]] = {
    "trial": {
        ("stranger", "picker", 9002),  # the gateway is not known, so any pod may be it
        ("prometheus", "picker", 9090),
        ("picker", "picker", 9092),
        ("check", "picker", 9002),
        ("check", "picker", 9003),
        ("check", "picker", 9090),
        ("check", "picker", 9092),
        ("picker", "valkey", 6379),
        ("picker", "nats", 4222),
        ("check", "valkey", 6379),
        ("check", "nats", 4222),
        ("model", "nats", 4222),  # bridges
        ("picker", "model", 8000),
        ("picker", "api server", 443),
        ("picker", "dns", 53),
    },
    "envoy-gateway": {
        ("envoy", "picker", 9002),
        ("envoy", "model", 8000),
        ("picker", "picker", 9092),
        ("picker", "model", 8000),
        ("picker", "model", 5557),  # the engines' events and replay
        ("picker", "model", 5558),
        ("picker", "data's valkey", 6380),
        ("picker", "data's nats", 4222),
        ("picker", "api server", 6443),
    },
    "istio": {
        ("istio", "picker", 9002),
        ("picker", "data's valkey", 6379),
        ("picker", "data's nats", 4222),
        ("picker", "model", 8000),
    },
    "without-rights": {
        ("picker", "internet", 8000),  # workers from a list may be anywhere
        ("picker", "data's valkey", 6379),
        ("picker", "picker", 9092),
    },
    "production": {
        ("edge", "picker", 9002),
        ("edge", "picker", 9003),
        ("prometheus", "picker", 9090),
        ("picker", "picker", 9092),
        ("picker", "data's valkey", 26379),
        ("picker", "data's valkey", 6379),
        ("picker", "data's nats", 4222),
        ("picker", "model elsewhere", 8000),
        ("picker", "model elsewhere", 8003),
        ("edge", "model elsewhere", 8000),
        ("picker", "api server", 6443),
    },
}
REFUSED: dict[str, set[tuple[str, str, int]]] = {
    "trial": {
        ("stranger", "picker", 9090),
        ("stranger", "picker", 9092),
        ("model", "picker", 9092),
        ("prometheus", "picker", 9092),
        ("stranger", "valkey", 6379),
        ("stranger", "nats", 4222),
        ("model", "valkey", 6379),
        ("another release", "picker", 9092),
        ("another release", "valkey", 6379),
        ("our labels elsewhere", "picker", 9092),
        ("valkey", "internet", 443),
        ("nats", "internet", 443),
        ("picker", "internet", 6379),
        ("picker", "stranger", 8000),
        ("picker", "stranger", 9002),
    },
    "envoy-gateway": {
        ("stranger", "picker", 9002),
        ("edge", "picker", 9002),
        ("envoy", "picker", 9092),
        ("prometheus", "picker", 9002),
        ("stranger", "model", 8000),
        ("envoy", "model", 5557),
        ("picker", "internet", 22),
    },
    "istio": {("stranger", "picker", 9002), ("envoy", "picker", 9002), ("model", "picker", 9002)},
    "without-rights": {("picker", "api server", 6443), ("picker", "api server", 443)},
    "production": {
        ("envoy", "picker", 9002),
        ("edge's neighbour", "picker", 9002),
        ("stranger", "picker", 9002),
        ("picker", "data's shell", 6379),
        ("picker", "data's nats", 6379),
        ("picker", "internet", 443),
        ("picker", "model", 8000),
        ("stranger", "model elsewhere", 8000),
        ("our labels elsewhere", "model elsewhere", 8000),
    },
}


def _of(objects: Objects, name: str) -> End:
    """The replicas' own labels, whatever the release calls itself."""
    if name == "picker":
        return End("picker", NAMESPACE, dict(objects.pod["metadata"]["labels"]))
    return ENDS[name]


@pytest.mark.parametrize("scenario_name", sorted(ALLOWED))
def test_what_must_flow_flows_and_nothing_else_of_the_matrix(scenario_name: str) -> None:
    objects = render(scenario_name)
    policies = objects.of("NetworkPolicy")

    def flows(source: str, target: str, port: int) -> bool:
        ends = _of(objects, source), _of(objects, target)
        return may(policies, *ends, port, "UDP" if port == 53 else "TCP")

    assert {flow for flow in ALLOWED[scenario_name] if not flows(*flow)} == set()
    assert {flow for flow in REFUSED[scenario_name] if flows(*flow)} == set()


def test_without_policies_everything_flows() -> None:
    assert may([], ENDS["stranger"], PARTS["picker"], 9090)


def test_every_scenario_has_a_policy_for_the_replicas(objects: Objects) -> None:
    labels = objects.pod["metadata"]["labels"]
    chosen = [each for each in objects.of("NetworkPolicy")
              if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]  # fmt: skip
    assert [each["spec"]["policyTypes"] for each in chosen] == [["Ingress", "Egress"]]


def test_a_bundled_server_starts_no_connection() -> None:
    for name in ("llama-8b-epp-valkey", "llama-8b-epp-nats"):
        assert render("trial").one("NetworkPolicy", name)["spec"]["egress"] == []
