"""The shape of a local cluster: what cannot be is refused with the reason; the ports file has one form."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from picker.cli.demo import command as demo
from picker.cli.up import command
from picker.sim.cluster import Cluster, Layout, LayoutError
from picker.sim.envoy import POOL_LIST


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout(plane="memory", replicas=2), "one process only, so not by 2 replicas"),
        (Layout(plane="nats", sync="atomic"), "--plane redis"),
        (Layout(replicas=0), "at least one replica"),
        (Layout(workers=0), "one worker"),
        (Layout(plane="nats", sentinels=True), "sentinels watch a Valkey; --plane nats has none"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_with_the_reason(layout: Layout, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        Cluster(layout)


def test_where_sentinels_watch_replicas_are_told_of_them_and_the_server_is_the_one_that_they_name(
    tmp_path: Path,
) -> None:
    cluster = Cluster(Layout(sentinels=True), logs=tmp_path)
    assert cluster.plane_url == f"redis+sentinel://{','.join(cluster.sentinels)}/plane"
    assert len({cluster.valkey, *cluster.standbys, *cluster.sentinels}) == 6
    assert cluster.plane_address == cluster.valkey
    cluster.primary = cluster.standbys[0]
    assert cluster.plane_address == cluster.standbys[0]


def test_one_replica_may_use_the_memory_plane(tmp_path: Path) -> None:
    assert Cluster(Layout(plane="memory", replicas=1), logs=tmp_path).plane_url == "memory://"


@pytest.mark.parametrize(
    "arguments", [["--plane", "memory"], ["--plane", "nats", "--sync", "atomic"], ["--plane", "etcd"]]
)
def test_the_command_refuses_a_bad_plane_without_a_traceback(arguments: list[str]) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "plane" in result.output
    assert "Traceback" not in result.output


def test_no_two_parts_share_a_port_and_all_are_on_loopback(tmp_path: Path) -> None:
    cluster = Cluster(Layout(replicas=5, workers=8), logs=tmp_path)
    addresses = [cluster.nats, cluster.valkey, cluster.envoy, cluster.round_robin, cluster.envoy_admin]
    for replica in cluster.replicas:
        addresses += [replica.extproc, replica.health, replica.admin, replica.peers]
    for worker in cluster.workers:
        addresses += [worker.address, worker.bridge_admin]
        addresses += [worker.events.removeprefix("tcp://"), worker.replay.removeprefix("tcp://")]
    assert len(set(addresses)) == len(addresses)
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_the_workers_file_is_replaced_in_one_step_and_holds_the_pool(tmp_path: Path) -> None:
    cluster = Cluster(Layout(workers=2), logs=tmp_path)
    cluster.set_workers([worker.address for worker in cluster.workers])
    listing = json.loads(cluster.workers_file.read_text())
    assert [each["address"] for each in listing["workers"]] == [worker.address for worker in cluster.workers]
    assert [file.name for file in tmp_path.iterdir()] == ["workers.json"]


@pytest.mark.parametrize(
    ("called", "option"), [(command, "--ports-file"), (demo, "--json")], ids=["up", "demo"]
)
def test_a_file_that_could_not_be_written_is_refused_before_anything_starts(
    called: click.Command, option: str, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    said = CliRunner().invoke(called, [option, str(missing / "file.json")])
    assert said.exit_code == 2
    assert f"{option}: the folder {missing} does not exist" in said.output


@pytest.mark.parametrize("called", [command, demo], ids=["up", "demo"])
def test_a_folder_of_logs_that_cannot_be_made_is_told_in_one_line(
    called: click.Command, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    said = CliRunner().invoke(called, ["--logs", str(tmp_path / "file" / "logs")])
    assert said.exit_code == 1
    assert said.exception is None or isinstance(said.exception, SystemExit)
    assert "Not a directory" in said.output.splitlines()[-1]


def test_with_fallbacks_the_gateway_walks_the_list_that_the_replicas_write(tmp_path: Path) -> None:
    cluster = Cluster(Layout(fallbacks=2, replicas=1), logs=tmp_path)
    pool = cluster.envoy_config()["static_resources"]["listeners"][0]
    manager = pool["filter_chains"][0]["filters"][0]["typed_config"]
    route = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
    assert (route["cluster"], route["retry_policy"]["num_retries"]) == (POOL_LIST, 2)
    (program,) = [cluster._replica_program(replica) for replica in cluster.replicas]
    assert program.environment["PICKER_FALLBACKS"] == "2"
