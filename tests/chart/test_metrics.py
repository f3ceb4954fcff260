"""Who may read metrics: what values make of the scrapers' objects and rights."""

from __future__ import annotations

from typing import Any

from tests.chart.flows import End, may
from tests.chart.rendering import Objects, render, rendered
from tests.chart.values import BASE, with_values


def _endpoint(objects: Objects, kind: str, listed: str) -> Any:
    (endpoint,) = objects.one(kind)["spec"][listed]
    return endpoint


def test_open_metrics_ask_for_nothing() -> None:
    objects = rendered(with_values(BASE, metrics__serviceMonitor__enabled=True))
    assert "PICKER_METRICS_PROTECTION" not in objects.environment
    assert not objects.of("ClusterRole")
    assert not {"authorization", "bearerTokenFile"} & set(_endpoint(objects, "ServiceMonitor", "endpoints"))


def test_protected_metrics_are_read_by_those_who_are_named() -> None:
    objects = render("production")
    assert objects.environment["PICKER_METRICS_PROTECTION"] == "kubernetes"
    names = {
        each["metadata"]["name"].removeprefix("llama-endpoint-picker-") for each in objects.of("ClusterRole")
    }
    assert names == {"judge", "metrics-reader"}
    reader = objects.one("ClusterRole", "llama-endpoint-picker-metrics-reader")
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    bound = objects.one("ClusterRoleBinding", "llama-endpoint-picker-metrics-reader")
    assert bound["roleRef"]["name"] == reader["metadata"]["name"]
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]
    assert _endpoint(objects, "ServiceMonitor", "endpoints")["bearerTokenFile"].endswith(
        "serviceaccount/token"
    )


def test_a_secrets_token_goes_before_the_scrapers_own() -> None:
    endpoint = _endpoint(render("seed"), "ServiceMonitor", "endpoints")
    assert endpoint["authorization"]["credentials"] == {"name": "metrics-token", "key": "token"}
    assert "bearerTokenFile" not in endpoint


def test_google_clouds_collectors_may_scrape_and_read_their_token_and_no_other_secret() -> None:
    objects = render("google")
    credentials = _endpoint(objects, "PodMonitoring", "endpoints")["authorization"]["credentials"]
    assert credentials == {"secret": {"name": "metrics-token", "key": "token"}}
    wanted = objects.one("PodMonitoring")["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= objects.pod["metadata"]["labels"].items()
    (rule,) = objects.one("Role", "llama-8b-epp-collector")["rules"]
    assert rule["resourceNames"] == ["metrics-token"]
    (subject,) = objects.one("RoleBinding", "llama-8b-epp-collector")["subjects"]
    collector = End("collector", subject["namespace"], {"app": "collector"})
    picker = End("picker", "llama", dict(objects.pod["metadata"]["labels"]))
    assert may(objects.of("NetworkPolicy"), collector, picker, 9090, "TCP")
    stranger = End("stranger", "default", {"app": "collector"})
    assert not may(objects.of("NetworkPolicy"), stranger, picker, 9090, "TCP")
