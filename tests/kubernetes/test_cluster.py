"""The cluster itself, where tests of the chart rely on it: what a pod gets, how it ends, what its names mean."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.resolver
import pytest

from tests.kubernetes.asking import until
from tests.kubernetes.cluster.container import Mount, Outfit
from tests.kubernetes.cluster.images import PICKER
from tests.kubernetes.cluster.network import NODE
from tests.kubernetes.cluster.running import Running

NAMESPACE = "plain"


@pytest.fixture(scope="module")
def plain(cluster: Running) -> Iterator[Running]:
    """A cluster with an empty namespace, which holds a ConfigMap."""
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page", "namespace": NAMESPACE},
            "data": {"words": "from a page"},
        },
    )  # fmt: skip
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE)


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main", "image": PICKER, "command": ["sh", "-c", script], **spec.pop("container", {}),
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }  # fmt: skip


async def ended(cluster: Running, name: str) -> dict[str, Any]:
    """The pod, once its process has ended."""

    async def over() -> bool:
        return cluster.get("pod", name, "-n", NAMESPACE)["status"]["phase"] in {"Succeeded", "Failed"}

    await until(over, seconds=20, what=f"{name} has ended")
    return cluster.get("pod", name, "-n", NAMESPACE)


async def test_a_pod_gets_what_its_spec_says(plain: Running) -> None:
    script = """
      echo "$WORDS" on "$ADDRESS"; cat /page/words; echo; id -u; touch /anywhere || echo cannot write
      touch /tmp/here && echo can write; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token
      exit 3
    """
    container = {
        "env": [
            {"name": "WORDS", "valueFrom": {"configMapKeyRef": {"name": "page", "key": "words"}}},
            {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "securityContext": {"runAsUser": 4711, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "page", "mountPath": "/page"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    volumes = [{"name": "page", "configMap": {"name": "page"}}, {"name": "tmp", "emptyDir": {}}]
    plain.apply(pod("asked", script, container=container, volumes=volumes))
    status = (await ended(plain, "asked"))["status"]
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    said = [
        line
        for line in plain.kubectl("logs", "asked", "-n", NAMESPACE).splitlines()
        if "anywhere" not in line
    ]
    expected = [
        f"from a page on {status['podIP']}",
        "from a page",
        "4711",
        "cannot write",
        "can write",
        "token",
    ]
    assert said == expected


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(plain: Running) -> None:
    plain.apply(pod("stubborn", "trap '' TERM; while :; do sleep 0.1; done", terminationGracePeriodSeconds=3))
    plain.kubectl("wait", "pod/stubborn", "-n", NAMESPACE, "--for=condition=Ready", "--timeout=20s")
    begun = time.monotonic()
    plain.kubectl("delete", "pod", "stubborn", "-n", NAMESPACE)
    assert 2.5 < time.monotonic() - begun < 10


async def test_a_name_is_the_ready_pods_and_a_cluster_ip_one_address(plain: Running) -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    volumes = [{"name": "tmp", "emptyDir": {}}]
    container = {
        "readinessProbe": probe, "ports": [{"containerPort": 8000}],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }  # fmt: skip
    late = pod("named", "sleep 4; touch /tmp/ready; sleep 60", container=container, volumes=volumes)
    late["spec"]["terminationGracePeriodSeconds"] = 1
    kinds: dict[str, dict[str, Any]] = {
        "ready": {"clusterIP": "None"}, "all": {"clusterIP": "None", "publishNotReadyAddresses": True}, "one": {},
    }  # fmt: skip
    port = {"name": "http", "port": 80, "targetPort": 8000}
    services = [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"selector": {"app": "named"}, "ports": [port], **more},
        }
        for name, more in kinds.items()
    ]  # fmt: skip
    plain.apply(*services, late)

    async def found(name: str) -> bool:
        return bool(addresses(name))

    await until(
        lambda: found("all"), seconds=4, what="a pod that is not ready has a name where that is asked for"
    )
    assert addresses("ready") == []
    await until(lambda: found("ready"), seconds=10, what="a ready pod has a name")
    address = plain.get("pod", "named", "-n", NAMESPACE)["status"]["podIP"]
    assert addresses("ready") == addresses("all") == [address]
    assert addresses("one") == [plain.get("service", "one", "-n", NAMESPACE)["spec"]["clusterIP"]]
    with pytest.raises(dns.resolver.NXDOMAIN):
        addresses("nobody")


def addresses(service: str) -> list[str]:
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [NODE]
    name = f"{service}.{NAMESPACE}.svc.cluster.local."
    answer = resolver.resolve(name, "A", raise_on_no_answer=False, lifetime=3)
    assert answer.rrset is None or answer.rrset.ttl == 5
    return [record.address for record in answer.rrset or ()]


async def test_what_an_account_may_not_do_is_denied_and_in_the_audit_log(plain: Running) -> None:
    path = "/api/v1/namespaces/kube-system/secrets"
    script = f"""
      import os, pathlib, ssl, urllib.error, urllib.request
      folder = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
      host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
      headers = {{"Authorization": "Bearer " + (folder / "token").read_text()}}
      request = urllib.request.Request(f"https://{{host}}:{{port}}{path}", headers=headers)
      trust = ssl.create_default_context(cafile=folder / "ca.crt")
      try:
          urllib.request.urlopen(request, context=trust)
      except urllib.error.HTTPError as error:
          print(error.read().decode())
    """
    plain.apply(pod("nosy", f"exec python -c '{textwrap.dedent(script)}'"))
    await ended(plain, "nosy")
    answer = json.loads(plain.log(NAMESPACE, "nosy", "main"))
    assert answer["reason"] == "Forbidden"
    assert path in [each["requestURI"] for each in plain.denied()]


def test_what_lies_within_another_mount_is_mounted_after_it(tmp_path: Path) -> None:
    inner, outer = Mount(tmp_path, "/tmp/some/where/deep"), Mount(tmp_path, "/tmp")
    for mounts in ((inner, outer), (outer, inner)):
        script = Outfit(("true",), {}, mounts, "network", tmp_path).script()
        assert script.index(f"--rbind {tmp_path} tmp\n") < script.index(
            f"--rbind {tmp_path} tmp/some/where/deep\n"
        )
