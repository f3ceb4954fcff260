"""What values turn into: every setting, what follows from several of them, and what is refused with the reason."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Literal

import pytest
import yaml

from charts.settings import HOMES, Setting, kind_of, settings
from discovery.kubernetes import paths
from picker.settings import Part
from picker.settings.table import rows
from tests.chart.flows import End, may
from tests.chart.rendering import CHART, SCENARIOS, Objects, notes, refused, render, rendered, settings_from

EXPERIMENTAL = "inference.networking.x-k8s.io"
BASE: dict[str, Any] = {"pool": {"selector": {"app": "llama-8b"}}}
REDIS = BASE | {"plane": {"url": "redis://valkey.data.svc:6379"}}


def with_values(base: Mapping[str, Any], **paths: Any) -> dict[str, Any]:
    """The values with more of them, by dotted paths in which `__` stands for the dot."""
    values: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in paths.items():
        *above, last = path.split("__")
        at = values
        for name in above:
            at = at.setdefault(name, {})
        at[last] = value
    return values


def in_pod(name: str, value: str) -> dict[str, Any]:
    """A variable of the picker's container by the operator's own pod template."""
    containers = [{"name": "picker", "env": [{"name": name, "value": value}]}]
    return {"podTemplate": {"spec": {"containers": containers}}}


# every setting is a value


def _another(setting: Setting) -> Any:
    """A value that is not the default and is allowed."""
    kind, default, schema = setting.kind, setting.default, setting.schema
    if setting.key == "labelAffinity":
        return ["x-tenant=tenant", "x-zone=zone:32"]
    if setting.key == "dynamoWorkers":
        return ["1=10.0.0.1:8000"]
    if setting.key == "tenantHeader":
        return "x-tenant"
    if kind == "boolean":
        return True if default == "" else not default
    if kind == "words":
        return ["labels"] if setting.key == "criteria" else ["one", "two"]
    if "enum" in schema:
        return next(each for each in reversed(schema["enum"]) if each not in (default, ""))
    if kind == "text":
        return "fd00::1" if setting.key in ("grpcHost", "adminHost") else "some text"
    of = schema.get("anyOf", [schema])[0]
    low = of.get("minimum", of.get("exclusiveMinimum", 0))
    value = (float(default or 1) + low) / 2 + 0.25
    if kind == "integer":
        value = int(value) + 1 if int(value) + 1 != default else int(value) + 2
    return min(value, of.get("maximum", value))


def test_every_setting_reaches_the_picker_by_its_value() -> None:
    chosen = [(each, _another(each)) for each in settings() if each.generated and each.part != "bridge"]
    values = with_values(REDIS, replicas=2)
    for setting, value in chosen:
        values.setdefault("settings", {}).setdefault(setting.part, {})[setting.key] = value
    objects = rendered(values)
    assert "--kv-cache-usage-percentage-metric=some text" in objects.picker["args"]
    environment = {name: value for name, value in objects.environment.items() if isinstance(value, str)}
    read = settings_from(environment)
    for setting, value in chosen:
        if setting.variable != "PICKER_KV_CACHE_USAGE_PERCENTAGE_METRIC":
            assert setting.variable in environment
            got = getattr(getattr(read, setting.part), setting.field)
            expected = tuple(value) if isinstance(value, list) else value
            assert got == expected or str(got) == expected, setting.variable


def test_every_name_that_picker_settings_lists_has_a_place_among_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    told_by_the_pod = {"PICKER_REPLICA_NAME", "PICKER_REPLICA_ADDRESS"}
    by_name = {each.variable: each for each in settings()}
    assert set(by_name) == {row.name for row in rows()}
    for name, setting in by_name.items():
        if name in told_by_the_pod:
            assert name in render("default").environment
            continue
        at: Any = values
        for key in setting.home.split("."):
            assert key in at, f"{name}: no value {setting.home}"
            at = at[key]


def test_no_home_is_kept_of_a_setting_that_is_gone() -> None:
    assert set(HOMES) <= {row.name for row in rows()}


def test_defaults_say_nothing(objects: Objects) -> None:
    """A variable whose value is the default anyway would only hide what was changed."""
    default = {each.variable: each.default for each in settings() if each.generated}
    said = {name: value for name, value in objects.environment.items() if name in default}
    own = {each["name"] for each in yaml.safe_load(SCENARIOS["pod-template"].read_text())["extraEnv"]}
    assert {name for name, value in said.items() if value == str(default[name])} <= own


def test_the_picker_accepts_what_every_scenario_says(objects: Objects) -> None:
    environment = {name: value for name, value in objects.environment.items() if isinstance(value, str)}
    assert settings_from(environment).sync in ("isolated", "eventual", "atomic")


# unknown and impossible values


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("replcias", "replcias"),
        ("pool__selektor", "selektor"),
        ("settings__serving__maxBodyByte", "maxBodyByte"),
        ("settings__servig", "servig"),
        ("plane__existingSecret__passwordkey", "passwordkey"),
        ("provider__envoyGateway__resiliance", "resiliance"),
        ("podTemplate__specs", "specs"),
        ("networkPolicy__workers__eventports", "eventports"),
        ("resources__request", "request"),
        ("nats__resources__limit", "limit"),
    ],
)
def test_a_misspelt_value_is_refused_by_name(path: str, name: str) -> None:
    assert f"additional properties '{name}' not allowed" in refused(with_values(BASE, **{path: {}}))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (with_values(BASE, replicas=3), "3 replicas cannot share load through the memory of one process"),
        (with_values(BASE, autoscaling={"enabled": True}), "6 replicas cannot share load through the memory"),
        (with_values(BASE, replicas=2, plane__url="memory://"), "cannot share load through the memory"),
        (
            with_values(BASE, plane__url="nats://n:4222", settings__plane__sync="atomic"),
            "atomic needs a plane that chooses and books in one step, which NATS cannot",
        ),
        (with_values(REDIS, plane__existingSecret={"name": "a", "urlKey": "u"}), "both name the plane"),
        (with_values(BASE, plane__existingSecret={"passwordKey": "p"}), "set plane.existingSecret.name"),
        (with_values(BASE, events__existingSecret={"nkeyKey": "p"}), "set events.existingSecret.name"),
        (with_values(BASE, tls__mode="files"), "needs tls.existingSecret"),
        (with_values(BASE, tls__existingSecret="x"), "read with tls.mode=files only"),
        (with_values(BASE, tls={"mode": "off", "client": {"existingSecret": "x"}}), "over TLS only"),
        (with_values(BASE, tls={"client": {"names": ["x"]}}), "no authority vouches for"),
        (with_values(BASE, provider={"name": "envoyGateway"}), "name the HTTPRoute"),
        (
            with_values(
                BASE, provider={"name": "envoyGateway", "route": {"name": "r"}, "extProc": {"failOpen": True}}
            ),
            "Envoy Gateway refuses it with FullDuplexStreamed",
        ),
        (
            with_values(
                BASE, tls__mode="self-signed", provider={"name": "envoyGateway", "route": {"name": "r"}}
            ),
            "Envoy Gateway verifies certificates",
        ),
        (with_values(BASE, tls__mode="off", provider={"name": "envoyAIGateway"}), "with TLS always"),
        (with_values(BASE, provider={"gateway": {"bufferLimit": "32Mi"}}), "needs the Gateway's name"),
        (with_values(BASE, provider={"gateway": {"bufferLimit": "much"}}), "does not match pattern"),
        (with_values(BASE, terminationGracePeriodSeconds=100), "would kill a replica that still drains"),
        (
            with_values(
                BASE,
                terminationGracePeriodSeconds=200,
                extraEnv=[{"name": "PICKER_DRAIN_MAX_SECONDS", "value": "300"}],
            ),
            "would kill a replica that still drains for up to 300 seconds",
        ),
        (
            with_values(BASE, metrics={"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}),
            "scrape every replica twice",
        ),
        (
            with_values(
                BASE,
                metrics={"podMonitoring": {"enabled": True}, "podMonitor": {"enabled": True}},
            ),
            "scrape every replica twice",
        ),
        (
            with_values(BASE, metrics={"protection": "kubernetes", "podMonitor": {"enabled": True}}),
            "has no token of its own to show",
        ),
        (with_values(BASE, metrics__readers=[{"kind": "User", "name": "x"}]), "everybody may read metrics"),
        (
            with_values(BASE, objects__imports__existingSecret="x"),
            "read with objects.inferencePoolImports=true only",
        ),
        (with_values(REDIS, autoscaling={"enabled": True, "minReplicas": 9}), "less than minReplicas"),
        (with_values(REDIS, autoscaling={"enabled": True, "cpuUtilization": 0}), "nothing to aim for"),
        (with_values(BASE, ports__peers=9002), "each needs a number of its own"),
        (with_values(BASE, discovery__workers__source="file"), "neither file nor addresses"),
        (with_values(BASE, discovery__workers__addresses=["a:1"]), "read with source: file only"),
        (with_values(BASE, resources__requests={"cpu": None}), "replicas without a request"),
        (
            with_values({}, pool__create=False, networkPolicy__workers__enabled=True),
            "the model servers' pods are not known",
        ),
        (with_values(BASE, plane__url="http://x"), "does not match pattern"),
        (with_values(BASE, pool__targetPorts=list(range(1, 10))), "maxItems"),
        (with_values(BASE, settings__plane__heartbeatSeconds=100), "/settings/plane/heartbeatSeconds"),
        (with_values(BASE, settings__requests__requestKeyHeaders=[]), "minItems"),
        (with_values(BASE, settings__price__criteria=["a,b"]), "does not match pattern"),
    ],
)
def test_values_that_cannot_work_are_refused_with_the_reason(values: dict[str, Any], words: str) -> None:
    assert words in refused(values)


@pytest.mark.parametrize(
    ("part", "url"),
    [
        ("plane", "redis://:hunter2@valkey:6379"),
        ("plane", "rediss://picker:hunter2@valkey"),
        ("plane", "redis://picker:hunter/2@valkey"),
        ("plane", "redis+sentinel://:hunter2@a:26379,b:26379/main"),
        ("plane", "nats://picker:hunter2@nats:4222"),
        ("plane", "nats://hunter2@nats:4222"),
        ("events", "nats://picker:hunter2@nats:4222"),
        ("events", "tls://hunter2@nats:4222"),
        ("events", "nats://a:4222,nats://hunter2@b:4222"),
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(part: str, url: str) -> None:
    said = refused(with_values(REDIS, **{f"{part}__url": url}))
    assert f"{part}.url: holds a password or a token" in said
    assert f"{part}.existingSecret.urlKey" in said
    assert "hunter" not in said


@pytest.mark.parametrize(
    "url",
    [
        "redis://picker@valkey:6380/1",
        "redis://[fd00::1]:6379",
        "redis+sentinel://picker@a:26379,b:26379/main?sentinel_user=a:b@c",
        "nats://picker@a:4222,b:4222",
    ],
)
def test_a_users_name_alone_is_no_secret(url: str) -> None:
    values = with_values(REDIS, plane={"url": url, "existingSecret": {"name": "s", "passwordKey": "p"}})
    assert rendered(values).environment["PICKER_PLANE_URL"] == url


def test_a_release_without_replicas_is_checked_for_one() -> None:
    (container,) = rendered(with_values(REDIS, replicas=0)).one("Pod")["spec"]["containers"]
    assert "--replicas=1" in container["args"]


def test_the_schema_leaves_no_key_free_that_is_ours() -> None:
    """What is free is Kubernetes' own, or a map of names."""
    free = []

    def walk(schema: Mapping[str, Any], path: str) -> None:
        if schema.get("type") == "object" and schema.get("additionalProperties", True) is True:
            free.append(path)
        for name, below in schema.get("properties", {}).items():
            walk(below, f"{path}.{name}".lstrip("."))

    walk(json.loads((CHART / "values.schema.json").read_text()), "")
    assert set(free) == {
        "global",
        "affinity",
        "metrics.authorization",
        "autoscaling.behavior",
        "podTemplate.spec",
    }


def test_the_chart_may_stand_below_another_one() -> None:
    assert rendered(with_values(BASE, **{"global": {"imageRegistry": "x"}})).name == "llama-8b-epp"


# what follows from values


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


# who may read metrics


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
