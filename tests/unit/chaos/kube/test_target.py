"""A release is met: found, reached, asked what can be done to it; and a dry run touches nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner, Result

from chaos.command import command
from chaos.quiet import is_quiet
from chaos.targets import Target, TargetError
from chaos.targets.kube.brief import Brief
from chaos.targets.kube.dry import brief_of, tell_plans
from chaos.targets.kube.options import Options, OptionsError
from chaos.targets.kube.release import ReleaseError, read_release
from chaos.targets.kube.target import Kube
from tests.unit.chaos.kube.cluster import NAMESPACE, Cluster, deployment


async def test_a_release_is_met_with_its_versions_and_replicas(cluster: Cluster, kube: Kube) -> None:
    assert isinstance(kube, Target)
    assert list(kube.replicas()) == sorted(cluster.names("llama"))
    told = kube.told()
    assert {key: told[key] for key in ("kind", "cluster", "release", "namespace", "chart", "image", "replicas")} == {
        "kind": "kube", "cluster": "v1.37.2", "release": "llama", "namespace": NAMESPACE, "chart": "picker-0.1.0",
        "image": "picker:1", "replicas": 3,
    }  # fmt: skip
    assert kube.topology.words().startswith("release llama in namespace staging, picker-0.1.0")
    assert kube.plane == "redis"
    assert cluster.calls == []


async def test_a_release_that_is_not_there_is_named(make: Callable[..., Kube]) -> None:
    with pytest.raises(TargetError, match=r"release qwen in namespace staging: .* 0 Deployments"):
        await make(release="qwen").meet()


async def test_an_api_server_that_refuses_is_told(cluster: Cluster, make: Callable[..., Kube]) -> None:
    cluster.answers["GET", "/deployments"] = [403]
    with pytest.raises(TargetError, match="HTTP 403"):
        await make().meet()


async def test_an_api_server_that_is_away_is_told(make: Callable[..., Kube], tmp_path: Path) -> None:
    nobody = Cluster(port=9)
    with pytest.raises(TargetError, match="Cannot connect"):
        await make(kubeconfig=nobody.kubeconfig(tmp_path)).meet()


def test_a_deployment_that_is_not_the_charts_is_no_release() -> None:
    entry = deployment("llama")
    entry["spec"]["template"]["spec"]["containers"][0]["name"] = "server"
    with pytest.raises(ReleaseError, match="not the chart's"):
        read_release([entry], namespace=NAMESPACE, name="llama")


def test_the_pool_is_the_one_that_replicas_are_told_of() -> None:
    entry = deployment("llama")
    container = entry["spec"]["template"]["spec"]["containers"][0]
    assert read_release([entry], namespace=NAMESPACE, name="llama").pool == (NAMESPACE, "llama")
    container["args"] = ["serve"]
    container["env"] = [
        {"name": "PICKER_POOL_NAME", "value": "qwen"},
        {"name": "PICKER_POOL_NAMESPACE", "value": "gpu"},
    ]
    assert read_release([entry], namespace=NAMESPACE, name="llama").pool == ("gpu", "qwen")


async def test_a_right_that_is_missing_takes_its_faults_away_and_says_which(
    cluster: Cluster, make: Callable[..., Kube]
) -> None:
    cluster.rights = {("patch", "nodes"): False, ("create", "pods/eviction"): False}
    kube = make()
    await kube.meet()
    assert kube.offers == {"kill", "terminate", "rollout", "scale", "cut-off"}
    assert kube.missing == {"evict": "no right to create pods/eviction", "cordon": "no right to patch nodes"}


async def test_a_release_that_an_autoscaler_scales_is_not_scaled(
    cluster: Cluster, make: Callable[..., Kube]
) -> None:
    target = {"kind": "Deployment", "name": "llama-epp"}
    cluster.autoscalers = [{"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": target}}]
    kube = make()
    await kube.meet()
    assert "HorizontalPodAutoscaler hpa" in kube.missing["scale"]


async def test_engines_that_do_not_tell_are_said_not_to(cluster: Cluster, kube: Kube) -> None:
    assert kube.lacks == ("audit", "truth")
    assert kube.truths() == {}
    assert "no InferencePool staging/llama" in kube.found.untold
    assert cluster.calls == []


async def test_engines_that_tell_are_asked_where_they_are(
    cluster: Cluster, make: Callable[..., Kube]
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n" + b'{"requests":[]}')
        writer.close()

    engine = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = engine.sockets[0].getsockname()[1]
    spec = {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": port}]}
    cluster.pools["llama"] = {"metadata": {"name": "llama", "namespace": NAMESPACE}, "spec": spec}
    ready = [{"type": "Ready", "status": "True"}]
    for name, labels in (("engine-a", {"app": "llama"}), ("other", {"app": "qwen"})):
        cluster.pods[name] = {
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels},
            "spec": {"nodeName": "node-0"},
            "status": {"podIP": "127.0.0.1", "conditions": ready},
            "_since": 0.0,
        }
    kube = make()
    await kube.start()
    assert kube.engines() == kube.truths() == {"engine-a": f"127.0.0.1:{port}"}
    assert kube.lacks == ("audit",)
    engine.close()


async def test_pages_that_need_a_token_are_shown_with_it(
    cluster: Cluster, make: Callable[..., Kube], tmp_path: Path
) -> None:
    cluster.token = "secret"
    file = tmp_path / "token"
    file.write_text("secret\n")
    kube = make(admin_token_file=str(file), reach="direct")
    await kube.start()
    async with aiohttp.ClientSession() as http:
        assert await is_quiet(kube, http)


@pytest.mark.parametrize(("reach", "status"), [("direct", 401), ("forward", 401)])
async def test_pages_that_are_not_shown_say_which_setting_is_needed(
    cluster: Cluster, make: Callable[..., Kube], reach: str, status: int
) -> None:
    cluster.token = "secret"
    with pytest.raises(TargetError, match=rf"HTTP {status} .*admin\.existingSecret.*--admin-token-file"):
        await make(reach=reach).start()


async def test_pods_are_dialled_through_port_forward_where_their_pages_want_loopback(
    cluster: Cluster, make: Callable[..., Kube]
) -> None:
    cluster.loopback_only = True
    kube = make()
    await kube.start()
    assert kube.told()["pods_reached"] == "through port-forward"
    assert all(address.startswith("127.0.0.1:") for address in kube.replicas().values())
    async with aiohttp.ClientSession() as http:
        assert await is_quiet(kube, http)


async def test_a_port_that_the_pod_does_not_serve_is_told(cluster: Cluster, kube: Kube) -> None:
    name = cluster.names("llama")[0]
    address = await kube.ways.forwards.to(NAMESPACE, name, 1)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        assert any("cannot dial 1" in fault for fault in kube.ways.forwards.faults)
    finally:
        writer.close()


async def test_a_replica_under_another_name_than_its_pods_is_refused(
    cluster: Cluster, make: Callable[..., Kube]
) -> None:
    cluster.aliases[cluster.names("llama")[0]] = "picker-0"
    with pytest.raises(TargetError, match="PICKER_REPLICA_NAME must be the pod's name"):
        await make().start()


async def test_a_dry_run_lists_every_call_and_makes_none(cluster: Cluster, options: Options) -> None:
    said: list[str] = []
    await tell_plans(options, "release", seed=1, keywords="", say=said.append)
    text = "\n".join(said)
    assert cluster.calls == []
    assert said[0] == "release llama in namespace staging: picker-0.1.0, image picker:1, Kubernetes v1.37.2"
    names = sorted(cluster.names("llama"))
    assert any(f"delete pods {name} (grace 0 s)" in text for name in names)
    assert all(f"delete pods {name}\n" in text for name in names), "one after the other in good order"
    assert (
        "patch deployments llama-epp (annotation kubectl.kubernetes.io/restartedAt of its pod template)"
        in text
    )
    assert "patch deployments/scale llama-epp (5 replicas)" in text
    assert "patch deployments/scale llama-epp (2 replicas)" in text
    assert text.count("patch deployments/scale llama-epp (3 replicas)") == 2, "healed twice"
    assert "create pods/eviction" in text
    assert "patch nodes node-0 (unschedulable)" in text
    assert "patch nodes node-0 (schedulable)" in text
    assert "delete networkpolicies picker-chaos-*" in text
    assert "not here: picks_go_on_while_the_plane_is_frozen: it needs a pool of the suite's own" in text


async def test_what_cannot_be_played_is_listed_with_the_reason(cluster: Cluster, options: Options) -> None:
    cluster.rights = {("delete", "pods"): False}
    said: list[str] = []
    await tell_plans(options, "smoke", seed=1, keywords="killed", say=said.append)
    assert "not here: replica_killed_in_a_burst: no right to delete pods" in said


async def test_a_brief_survives_the_way_to_the_process_that_plays(cluster: Cluster, options: Options) -> None:
    brief = await brief_of(options)
    assert Brief.from_json(brief.to_json()) == brief
    assert brief.lacking(("kill", "scale")) == ""
    assert brief.lacking(("local",)).startswith("it needs a pool of the suite's own")
    assert cluster.calls == []


def run(*words: str) -> Result:
    return CliRunner().invoke(command, ["run", *words])


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("--namespace", ("--release", "llama", "--gateway", "http://g")),
        ("--release", ("--namespace", "staging", "--gateway", "http://g")),
        ("--gateway", ("--namespace", "staging", "--release", "llama")),
    ],
)
def test_an_option_that_is_missing_is_named(missing: str, words: tuple[str, ...]) -> None:
    told = run("--target", "kube", *words)
    assert told.exit_code == 2
    assert f"--target kube: {missing}: the" in told.output


def test_options_of_a_release_are_refused_for_a_pool_of_the_suites_own() -> None:
    told = run("--release", "llama", "--dry-run")
    assert told.exit_code == 2
    assert "--release: for --target kube only" in told.output


def test_a_target_that_there_is_not_is_refused() -> None:
    told = run("--target", "kube:staging/llama")
    assert told.exit_code == 2
    assert "kube: a release in Kubernetes, by --kubeconfig" in " ".join(told.output.split())


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"gateway": "gateway:80"}, "does not begin with http"),
        ({"kubeconfig": "/nowhere"}, "--kubeconfig: there is no file"),
        ({"admin_token_file": "/nowhere"}, "--admin-token-file: there is no file"),
    ],
)
def test_options_that_cannot_be_say_why(changed: dict[str, str], what: str) -> None:
    told = {"namespace": "n", "release": "r", "gateway": "http://g", **changed}
    with pytest.raises(OptionsError, match=what):
        Options(**told).check()  # type: ignore[arg-type]


def test_the_same_target_is_named_again_by_its_words() -> None:
    options = Options("staging", "llama", "http://g", kubeconfig="k", notice_seconds=0.5)
    assert options.words() == [
        "--target", "kube", "--namespace", "staging", "--release", "llama", "--gateway", "http://g",
        "--kubeconfig", "k", "--gateway-notices", "0.5",
    ]  # fmt: skip
    assert Options.from_json(options.to_json()) == options
