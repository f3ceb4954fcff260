"""The gateway's configuration: what a lost replica needs stands in it, and the real Envoy accepts it."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from picker.sim.envoy import PICKERS, POOL_LIST, BodyMode, Listener, envoy_config


def cluster_of(config: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in config["static_resources"]["clusters"] if each["name"] == name)


def filters_of(config: dict[str, Any], number: int = 0) -> list[dict[str, Any]]:
    listener = config["static_resources"]["listeners"][number]
    connections = listener["filter_chains"][0]["filters"][0]["typed_config"]
    filters: list[dict[str, Any]] = connections["http_filters"]
    return filters


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("fail_open", [False, True])
def test_the_real_envoy_accepts_every_pair_of_body_modes(tls: bool, fail_open: bool, tmp_path: Path) -> None:
    modes: tuple[BodyMode, ...] = get_args(BodyMode)
    listeners = [
        Listener(f"{ask}-{answer}", 20_000 + number, request_body_mode=ask, response_body_mode=answer)
        for number, (ask, answer) in enumerate(itertools.product(modes, modes))
    ]
    listeners.append(Listener("plain", 21_000, ext_proc=False))
    listeners.append(Listener("skip", 21_001, response_trailers="SKIP", retries=1))
    listeners.append(Listener("list", 21_002, follows_list=True, retries=2, attributes=False))
    config = envoy_config(
        listeners,
        ["127.0.0.1:9002", "[::1]:9002"],
        19_000,
        workers=["127.0.0.1:8000"],
        tls=tls,
        failure_mode_allow=fail_open,
        health_check="tcp",
    )
    file = tmp_path / "envoy.json"
    file.write_text(json.dumps(config))
    envoy = Path(sys.executable).parent / "envoy"
    done = subprocess.run(
        [envoy, "--mode", "validate", "-c", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_lost_replica_is_met_by_health_check_outlier_detection_and_a_retry_that_envoy_obeys() -> None:
    config = envoy_config([Listener("pool", 8080)], ["127.0.0.1:9002", "127.0.0.1:9012"], 19_000)
    pickers = cluster_of(config, PICKERS)
    (check,) = pickers["health_checks"]
    assert check["interval"] == check["no_traffic_interval"] == "1s"
    assert check["unhealthy_threshold"] == check["healthy_threshold"] == 1
    assert pickers["outlier_detection"]["consecutive_local_origin_failure"] == 1
    assert pickers["outlier_detection"]["split_external_local_origin_errors"] is True
    service = filters_of(config)[0]["typed_config"]["grpc_service"]
    assert "unavailable" in service["retry_policy"]["retry_on"]
    assert "retry_policy" not in service["envoy_grpc"]


def test_with_no_replica_left_all_are_asked_unless_requests_may_go_on_without() -> None:
    for fail_open, percent in ((False, 1), (True, 0)):
        config = envoy_config(
            [Listener("pool", 8080)], ["127.0.0.1:9002"], 19_000, failure_mode_allow=fail_open
        )
        assert cluster_of(config, PICKERS)["common_lb_config"]["healthy_panic_threshold"]["value"] == percent


def test_a_listener_without_a_picker_has_neither_filter_nor_access_log() -> None:
    config = envoy_config([Listener("plain", 8080, ext_proc=False)], [], 19_000, workers=["127.0.0.1:8000"])
    assert [each["name"] for each in filters_of(config)] == ["envoy.filters.http.router"]
    assert "access_log" not in json.dumps(config)
    assert [each["name"] for each in config["static_resources"]["clusters"]] == ["workers"]


def test_buffers_hold_the_largest_body_that_a_picker_reads() -> None:
    config = envoy_config([Listener("pool", 8080)], ["127.0.0.1:9002"], 19_000)
    resources = config["static_resources"]
    for part in [*resources["listeners"], *resources["clusters"]]:
        assert part["per_connection_buffer_limit_bytes"] >= 32 * 1024 * 1024


@pytest.mark.parametrize(
    ("listener", "pickers", "names"),
    [
        (Listener("a", 1), [], "no picker address"),
        (Listener("b", 1, ext_proc=False), ["127.0.0.1:1"], "no worker"),
        (
            Listener("c", 1, response_body_mode="FULL_DUPLEX_STREAMED", response_trailers="SKIP"),
            ["127.0.0.1:1"],
            "trailers SEND",
        ),
    ],
)
def test_what_could_not_serve_is_refused_with_the_listeners_name(
    listener: Listener, pickers: list[str], names: str
) -> None:
    with pytest.raises(ValueError, match=f"{listener.name}.*{names}"):
        envoy_config([listener], pickers, 19_000)


def test_the_access_log_names_bookings_at_once_and_every_second_while_they_run() -> None:
    config = envoy_config([Listener("pool", 8080)], ["127.0.0.1:9002"], 19_000)
    connections = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    assert connections["access_log_options"]["access_log_flush_interval"] == "1s"
    (entry,) = connections["access_log"]
    assert entry["typed_config"]["additional_request_headers_to_log"] == ["x-picker-booking"]
    assert entry["typed_config"]["common_config"]["buffer_size_bytes"] == 0


def test_a_gateway_that_follows_the_list_dials_the_workers_it_was_given_and_tells_which_one_served() -> None:
    config = envoy_config(
        [Listener("list", 8080, follows_list=True, retries=2)],
        ["127.0.0.1:9002"],
        19_000,
        workers=["127.0.0.1:8000", "127.0.0.1:8001"],
    )
    cluster = cluster_of(config, POOL_LIST)
    assert len(cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]) == 2
    (policy,) = cluster["load_balancing_policy"]["policies"]
    override = policy["typed_extension_config"]["typed_config"]
    assert override["override_host_sources"] == [{"header": "x-gateway-destination-endpoint"}]
    assert override["selected_host_key"]["path"] == [{"key": "x-gateway-destination-endpoint-served"}]


def test_a_gateway_that_follows_the_list_has_to_know_the_workers() -> None:
    with pytest.raises(ValueError, match="no worker is given"):
        envoy_config([Listener("list", 8080, follows_list=True)], ["127.0.0.1:9002"], 19_000)
