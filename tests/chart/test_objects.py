"""What follows from values, several of them together: modes, services, memory, rights, secrets, rollouts."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from charts.settings import kind_of
from discovery.kubernetes import paths
from picker.settings import Part
from tests.chart.rendering import SCENARIOS, Objects, notes, render, rendered, settings_from
from tests.chart.values import BASE, REDIS, in_pod, with_values

EXPERIMENTAL = "inference.networking.x-k8s.io"


def test_more_replicas_turn_sync_on() -> None:
    assert "PICKER_SYNC" not in rendered(REDIS).environment
    assert rendered(with_values(REDIS, replicas=2)).environment["PICKER_SYNC"] == "eventual"
    assert (
        rendered(with_values(REDIS, autoscaling={"enabled": True})).environment["PICKER_SYNC"] == "eventual"
    )
    atomic = with_values(REDIS, replicas=2, settings__plane__sync="atomic")
    assert rendered(atomic).environment["PICKER_SYNC"] == "atomic"


@pytest.mark.parametrize(
    "word",
    [
        {"settings": {"plane": {"replicaSync": False}}},
        {"extraEnv": [{"name": "DYN_ROUTER_REPLICA_SYNC", "value": "false"}]},
        {"extraEnv": [{"name": "PICKER_SYNC", "value": "isolated"}]},
        in_pod("DYN_ROUTER_REPLICA_SYNC", "false"),
        in_pod("PICKER_SYNC", "isolated"),
    ],
)  # fmt: skip
def test_isolated_stays_in_reach_of_the_operators_own_word(word: dict[str, Any]) -> None:
    objects = rendered(with_values(REDIS, replicas=3) | word)
    environment = {name: value for name, value in objects.environment.items() if isinstance(value, str)}
    assert settings_from(environment).sync == "isolated"


def test_isolated_replicas_may_keep_their_bookings_to_themselves() -> None:
    values = with_values(BASE, replicas=3, settings__plane__sync="isolated")
    assert rendered(values).one("Deployment", "llama-8b-epp")["spec"]["replicas"] == 3


def test_a_variable_of_the_operator_silences_the_flag_of_the_same_setting() -> None:
    objects = rendered(with_values(BASE, extraEnv=[{"name": "PICKER_POOL_NAME", "value": "other"}]))
    assert not any(each.startswith("--pool-name=") for each in objects.picker["args"])
    assert objects.environment["PICKER_POOL_NAME"] == "other"


def test_the_pod_template_is_laid_over_by_name() -> None:
    objects = render("pod-template")
    names = [each["name"] for each in objects.pod["spec"]["containers"]]
    assert names == ["picker", "shell"]
    assert objects.picker["resources"]["limits"].keys() == {"cpu", "memory"}
    assert {"name": "tmp", "mountPath": "/var/tmp"} in objects.picker["volumeMounts"]
    volumes = {each["name"]: each for each in objects.pod["spec"]["volumes"]}
    assert volumes["tmp"]["emptyDir"] == {"sizeLimit": "64Mi"}
    assert "rewrites" in volumes
    assert objects.environment["PICKER_LOG_LEVEL"] == "error"
    assert objects.environment["PICKER_PLANE_URL"] == {"secretKeyRef": {"name": "plane", "key": "url"}}


@pytest.mark.parametrize(
    ("scenario_name", "mode"),
    [
        ("trial", "self-signed"),
        ("envoy-ai-gateway", "self-signed"),
        ("istio", "self-signed"),
        ("seed", None),
        ("envoy-gateway", "files"),
    ],
)
def test_tls_follows_the_provider(scenario_name: str, mode: str | None) -> None:
    assert render(scenario_name).environment.get("PICKER_TLS") == mode


@pytest.mark.parametrize(
    ("scenario_name", "headless"),
    [
        ("trial", True),
        ("envoy-ai-gateway", True),
        ("envoy-gateway", False),
        ("istio", False),
        ("without-rights", False),
    ],
)
def test_the_service_is_headless_where_the_gateway_resolves_names(scenario_name: str, headless: bool) -> None:
    spec = render(scenario_name).one("Service", "llama-8b-epp")["spec"]
    assert (spec.get("clusterIP") == "None") is headless
    peers = render(scenario_name).one("Service", "llama-8b-epp-peers")["spec"]
    assert (peers["clusterIP"], peers["publishNotReadyAddresses"]) == ("None", True)


def test_memory_follows_the_index_and_the_bodies_in_flight() -> None:
    def memory(entries: int, bodies: int) -> tuple[int, int]:
        found = rendered(
            with_values(BASE, index__entries=entries, settings__serving__maxBufferedBytes=bodies)
        )
        resources = found.picker["resources"]
        return tuple(int(resources[each]["memory"].removesuffix("Mi")) for each in ("requests", "limits"))  # type: ignore[return-value]

    asked, most = memory(20_000_000, 256 * 2**20)
    assert asked * 2**20 >= 20_000_000 * 85
    assert most - asked == 256
    assert memory(0, 2**20) == (160, 161)


def test_a_replica_outlives_its_drain(objects: Objects) -> None:
    grace = objects.pod["spec"]["terminationGracePeriodSeconds"]
    drain = float(objects.environment.get("PICKER_DRAIN_MAX_SECONDS", 130))
    assert grace > drain


def test_one_replica_in_memory_is_warned_of() -> None:
    assert "WARNING: the plane is the memory of one process" in notes(SCENARIOS["default"])
    assert "WARNING: one replica" not in notes(SCENARIOS["default"])
    assert "WARNING: one replica" in notes(SCENARIOS["default"], "--set", "plane.url=redis://x")
    assert "WARNING" not in notes(SCENARIOS["istio"])


def test_pods_are_held_to_the_restricted_standard(objects: Objects) -> None:
    pods = [each["spec"]["template"] for each in objects.of("Deployment")] + list(objects.of("Pod"))
    for pod in pods:
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["securityContext"]["runAsUser"] == 65532
        assert pod["spec"]["enableServiceLinks"] is False
        for container in pod["spec"]["containers"]:
            if container["name"] == "shell":
                continue
            context = container["securityContext"]
            assert context["runAsNonRoot"] is True
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_a_token_is_mounted_only_where_the_api_server_is_asked() -> None:
    assert render("trial").pod["spec"]["automountServiceAccountToken"] is True
    quiet = render("without-rights")
    assert quiet.pod["spec"]["automountServiceAccountToken"] is False
    assert not quiet.of("Role") + quiet.of("ClusterRole")


@pytest.mark.parametrize(
    ("feature", "role", "rules"),
    [
        ({"objects": {"inferenceObjectives": True}}, "objectives",
         {(EXPERIMENTAL, "inferenceobjectives"), ("llm-d.ai", "inferenceobjectives")}),
        ({"objects": {"inferenceModelRewrites": True}}, "rewrites",
         {(EXPERIMENTAL, "inferencemodelrewrites"), ("llm-d.ai", "inferencemodelrewrites")}),
        ({"objects": {"inferencePoolImports": True}}, "imports", {(EXPERIMENTAL, "inferencepoolimports")}),
        ({"discovery": {"peers": {"source": "endpointSlices"}}}, "peers", {("discovery.k8s.io", "endpointslices")}),
    ],
)  # fmt: skip
def test_each_feature_has_a_role_of_its_own(
    feature: dict[str, Any], role: str, rules: set[tuple[str, str]]
) -> None:
    before, after = rendered(BASE), rendered(BASE | feature)
    assert after.names("Role") - before.names("Role") == {f"llama-8b-epp-{role}"}
    assert after.names("RoleBinding") - before.names("RoleBinding") == {f"llama-8b-epp-{role}"}
    granted = after.one("Role", f"llama-8b-epp-{role}")["rules"]
    assert {
        (group, name) for each in granted for group in each["apiGroups"] for name in each["resources"]
    } == rules
    assert {verb for each in granted for verb in each["verbs"]} == {"get", "list", "watch"}


@pytest.mark.parametrize(
    ("plural", "kinds", "role"),
    [("inferencepools", paths.POOL, "workers"), ("inferenceobjectives", paths.OBJECTIVE, "objectives"),
     ("inferencemodelrewrites", paths.REWRITE, "rewrites"), ("inferencepoolimports", paths.IMPORT, "imports"),
     ("endpointslices", paths.SLICE, "peers")],
)  # fmt: skip
def test_a_role_covers_every_place_where_its_kind_is_looked_for_and_no_other(
    plural: str, kinds: tuple[str, ...], role: str
) -> None:
    rules = render("seed").one("Role", f"llama-8b-epp-{role}")["rules"]
    granted = {group for each in rules if plural in each["resources"] for group in each["apiGroups"]}
    assert granted == {place.partition("/")[0] for place in kinds}


def test_the_way_to_other_clusters_is_a_file_out_of_a_secret() -> None:
    objects = render("production")
    assert objects.environment["PICKER_IMPORT_KUBECONFIG"] == "/etc/picker/imports/kubeconfig"
    volumes = {each["name"]: each for each in objects.pod["spec"]["volumes"]}
    assert volumes["imports"]["secret"] == {
        "secretName": "clusters",
        "items": [{"key": "kubeconfig", "path": "kubeconfig"}],
    }
    assert {"name": "imports", "mountPath": "/etc/picker/imports", "readOnly": True} in objects.picker[
        "volumeMounts"
    ]


def test_rights_stand_where_the_objects_are() -> None:
    objects = render("production")
    places = {
        each["metadata"]["name"].removeprefix("endpoint-picker-"): each["metadata"]["namespace"]
        for each in objects.of("Role")
    }
    assert places == {"workers": "models", "peers": "llama", "objectives": "models", "rewrites": "models",
                      "imports": "models", "extra": "models"}  # fmt: skip
    assert {each["subjects"][0]["namespace"] for each in objects.of("RoleBinding")} == {"llama"}


def test_scaling_leaves_the_number_of_replicas_to_the_autoscaler() -> None:
    objects = render("production")
    assert "replicas" not in objects.one("Deployment", "endpoint-picker")["spec"]
    metrics = objects.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert [each["type"] for each in metrics] == ["Resource", "Pods"]
    assert metrics[1]["pods"]["metric"]["name"] == "picker_streams_open"


def test_an_upgrade_takes_no_replica_away_before_its_successor_is_ready(objects: Objects) -> None:
    strategy = objects.one("Deployment", objects.name)["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def test_a_budget_guards_several_replicas_only() -> None:
    assert render("trial").one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert not render("default").of("PodDisruptionBudget")


def test_secrets_are_named_and_never_rendered(objects: Objects) -> None:
    assert not objects.of("Secret")
    for name, value in objects.environment.items():
        if name == "PICKER_ADMIN_TOKEN":
            assert "secretKeyRef" in value
        if name.endswith("_PASSWORD_FILE"):
            assert value == "/etc/picker/plane/password"


def test_the_test_pod_is_told_what_the_replicas_are() -> None:
    for name in ("trial", "production", "seed", "pod-template"):
        objects = render(name)
        (container,) = objects.one("Pod")["spec"]["containers"]
        said = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
        assert len(said) == len(container["env"])
        told_by_the_pod = {"PICKER_REPLICA_NAME", "PICKER_REPLICA_ADDRESS"}
        assert {
            key: value for key, value in objects.environment.items() if key not in told_by_the_pod
        }.items() <= said.items()
        assert container["args"][0] == "check"
        assert f"--service={objects.name}.llama.svc" in container["args"]
        assert objects.one("Pod")["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_a_changed_setting_starts_the_pods_anew() -> None:
    def mark(values: dict[str, Any]) -> str:
        return str(rendered(values).pod["metadata"]["annotations"]["checksum/settings"])

    assert mark(BASE) == mark(with_values(BASE, revisionHistoryLimit=2))
    assert mark(BASE) != mark(with_values(BASE, settings__price__blockSize=64))


def test_fixed_peers_go_before_the_headless_service() -> None:
    environment = rendered(
        with_values(REDIS, discovery__peers__addresses=["10.0.0.1:9092", "10.0.0.2"])
    ).environment
    assert environment["PICKER_PEERS"] == "10.0.0.1:9092,10.0.0.2"
    assert "PICKER_PEER_SERVICE" not in environment
    assert render("trial").environment["PICKER_PEER_SERVICE"] == "llama-8b-epp-peers.llama.svc"


def test_gateways_show_certificates_of_their_own() -> None:
    environment = render("envoy-gateway").environment
    assert environment["PICKER_TLS_CLIENT_NAMES"] == "spiffe://cluster.local/ns/envoy-gateway-system/sa/envoy"
    assert environment["PICKER_TLS_CLIENT_CA_FILE"] == "/etc/picker/clients/ca.crt"
    mounts = {each["name"]: each["mountPath"] for each in render("envoy-gateway").picker["volumeMounts"]}
    volumes = {each["name"] for each in render("envoy-gateway").pod["spec"]["volumes"]}
    assert mounts.keys() == volumes == {"tmp", "tls", "clients", "plane", "nats", "peers"}
    assert mounts["clients"] == "/etc/picker/clients"


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("redis://valkey", {6379}),
        ("rediss://user12345@valkey:6380/1", {6380}),
        ("redis://[fd00::1]:7000", {7000}),
        ("redis+sentinel://a:26379,b:26380/primary", {26379, 26380}),
        ("redis+sentinel://a,b/primary", {26379}),
        ("nats://n", {4222}),
        ("tls://n:4333", {4333}),
    ],
)
def test_the_planes_ports_are_let_through(url: str, ports: set[int]) -> None:
    policy = rendered(with_values(BASE, plane__url=url)).one("NetworkPolicy")
    rules = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
    found = {each["port"] for rule in rules for each in rule["ports"]}
    assert found == ports | {443, 6443}


def test_a_word_that_holds_the_name_of_a_type_is_still_a_word() -> None:
    class Chosen(Part):
        source: Literal["endpointslices", "dns"] = "dns"
        """Where from."""
        limit: float | None = None
        """How many."""
        names: tuple[str, ...] = ()
        """Which."""

    kinds = {name: kind_of(info) for name, info in Chosen.model_fields.items()}
    assert kinds == {"source": "text", "limit": "number", "names": "words"}
