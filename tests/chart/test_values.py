"""Every setting is a value; values that are unknown, or that cannot work, are refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from charts.settings import HOMES, Setting, settings
from picker.settings.table import rows
from tests.chart.rendering import CHART, SCENARIOS, Objects, refused, render, rendered, settings_from
from tests.chart.values import BASE, REDIS, with_values


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
