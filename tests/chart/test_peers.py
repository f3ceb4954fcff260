"""How replicas prove themselves to one another: one secret or certificate for all of them, and for the test's pod."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from picker.peers.credentials import LONGEST, SHORTEST
from tests.chart.rendering import Objects, refused, render, rendered, settings_from

REDIS: dict[str, Any] = {
    "replicas": 2,
    "plane": {"url": "redis://valkey"},
    "pool": {"selector": {"app": "m"}},
}
NAME = "llama-8b-epp-peers"
LIVE = ("--api-versions", "v1/Secret", "--api-versions", "v1/PodExecOptions")
"""What helm knows of a server that it installs on, and not where it only renders."""
WATCHED = ("--api-versions", "v1", "--api-versions", "v1/Secret", "--api-versions", "apps/v1/Deployment")
"""What Argo CD tells of a server: the kinds that can be listed and watched."""


def with_peers(**peers: Any) -> dict[str, Any]:
    return REDIS | {"discovery": {"peers": peers}}


def peers_volume(objects: Objects) -> dict[str, Any]:
    return next(each["secret"] for each in objects.pod["spec"]["volumes"] if each["name"] == "peers")


def test_an_installation_makes_a_secret_that_the_picker_takes_and_every_replica_mounts() -> None:
    objects = rendered(REDIS, *LIVE)
    (word,) = objects.one("Secret", NAME)["data"].values()
    assert SHORTEST <= len(base64.b64decode(word)) <= LONGEST
    assert peers_volume(objects) == {"secretName": NAME, "optional": True}
    settings = settings_from({"PICKER_PEERS_SECRET_FILE": objects.environment["PICKER_PEERS_SECRET_FILE"]})
    assert str(settings.peers.peers_secret_file) == "/etc/picker/peers/secret"


def test_where_helm_only_renders_no_secret_is_made_so_that_renders_are_equal() -> None:
    for known in ((), WATCHED):
        assert rendered(REDIS, *known).of("Secret") == ()
    assert render("trial").of("Secret") == ()


def test_the_pod_of_helm_test_proves_itself_as_replicas_do() -> None:
    pod = render("trial").one("Pod", "llama-8b-epp-check")["spec"]
    (container,) = pod["containers"]
    named = {each["name"]: each.get("value") for each in container["env"]}
    assert named["PICKER_PEERS_SECRET_FILE"] == "/etc/picker/peers/secret"
    assert "/etc/picker/peers" in {each["mountPath"] for each in container["volumeMounts"]}
    assert container["args"] == [
        "check",
        "--service=llama-8b-epp.llama.svc",
        "--peer-service=llama-8b-epp-peers.llama.svc",
        "--replicas=3",
        "--wait=30",
    ]


def test_a_named_secret_goes_before_one_of_our_own() -> None:
    objects = rendered(with_peers(existingSecret="theirs", secretKey="word"), *LIVE)
    assert objects.of("Secret") == ()
    assert peers_volume(objects) == {"secretName": "theirs", "optional": False}
    assert objects.environment["PICKER_PEERS_SECRET_FILE"] == "/etc/picker/peers/word"


def test_certificates_beside_the_secret() -> None:
    objects = render("production")
    environment = {name: str(value) for name, value in objects.environment.items() if "PEERS_" in name}
    settings = settings_from(environment).peers
    assert settings.peers_secret_file is not None
    assert str(settings.peers_tls_ca_file) == "/etc/picker/peers/ca.crt"
    assert str(settings.peers_tls_key_file) == "/etc/picker/peers/tls.key"
    assert settings.peers_tls_names == ("spiffe://cluster.local/ns/llama/sa/endpoint-picker",)


def test_another_port_is_said_to_the_replicas_and_off_gives_them_nothing() -> None:
    objects = rendered(REDIS | {"ports": {"peers": 9192}})
    assert objects.environment["PICKER_PEERS_PORT"] == "9192"
    objects = rendered(with_peers(guard="off"), *LIVE)
    assert not [name for name in objects.environment if name.startswith("PICKER_PEERS_")]
    assert "peers" not in {each["name"] for each in objects.pod["spec"]["volumes"]}
    assert objects.of("Secret") == ()


@pytest.mark.parametrize(
    ("peers", "words"),
    [
        ({"guard": "mtls"}, "needs a secret with tls.crt"),
        ({"names": ["a.b"]}, "guard=mtls or both only"),
        ({"guard": "off", "existingSecret": "s"}, "nobody reads it"),
        ({"guard": "open"}, "/discovery/peers/guard"),
    ],
)
def test_peers_that_could_not_prove_themselves_are_refused(peers: dict[str, Any], words: str) -> None:
    assert words in refused(with_peers(**peers))
