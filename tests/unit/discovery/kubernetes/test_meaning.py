"""What objects mean: any JSON in, endpoints and peers out."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.found import Endpoint, Peer
from discovery.kubernetes.imports import read_import
from discovery.kubernetes.objectives import Objective, priorities, read_objective
from discovery.kubernetes.pods import Pod, endpoints, port_faults, read_pod
from discovery.kubernetes.pools import ObjectError, Pool, read_pool
from discovery.kubernetes.slices import peers, read_slice, service_of
from discovery.source import DiscoveryError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
IPS = st.ip_addresses().map(str)
PORTS = st.integers(1, 65535)
LABELS = st.dictionaries(st.sampled_from(["app", "role", "lora"]), st.sampled_from(["a", "b"]), max_size=3)


def pod(ip: str = "10.0.0.1", *, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", **metadata},
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]},
    }


def active(text: str, name: str = "llm-d.ai/active-ports") -> Pod:
    read = read_pod(pod(annotations={name: text}))
    assert read is not None
    return read


# pools


def test_a_pool_of_v1_names_labels_ports_and_protocol() -> None:
    spec = {
        "selector": {"matchLabels": {"app": "llama", "role": "decode"}},
        "targetPorts": [{"number": 8000}, {"number": 8001}],
        "appProtocol": "kubernetes.io/h2c",
    }
    pool = read_pool({"spec": spec})
    assert pool == Pool({"app": "llama", "role": "decode"}, (8000, 8001), "kubernetes.io/h2c")
    assert pool.query == "app=llama,role=decode"


def test_an_older_pool_names_one_port_and_a_plain_selector() -> None:
    assert read_pool({"spec": {"selector": {"app": "x"}, "targetPortNumber": 8000}}) == Pool(
        {"app": "x"}, (8000,)
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "spec must be"),
        ({"targetPortNumber": 1}, "spec.selector must be"),
        ({"selector": {}, "targetPortNumber": 1}, "none would select every pod"),
        ({"selector": {"matchLabels": {}}, "targetPortNumber": 1}, "none would select every pod"),
        ({"selector": {"a": "b,c=d"}, "targetPortNumber": 1}, "'a' is no label"),
        ({"selector": {"a": 1}, "targetPortNumber": 1}, "'a' is no label"),
        ({"selector": {"a": "b"}}, "targetPorts must be numbers"),
        ({"selector": {"a": "b"}, "targetPorts": []}, "1 to 8 ports"),
        ({"selector": {"a": "b"}, "targetPorts": [{"number": 1}] * 9}, "1 to 8 ports"),
        ({"selector": {"a": "b"}, "targetPorts": [{"number": 0}]}, "from 1 to 65535"),
        ({"selector": {"a": "b"}, "targetPorts": [{"number": True}]}, "from 1 to 65535"),
        ({"selector": {"a": "b"}, "targetPorts": [{"number": 5}, {"number": 5}]}, "each once"),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused_with_the_field(spec: Any, said: str) -> None:
    with pytest.raises(ObjectError, match=said):
        read_pool({"spec": spec})


@given(JSON, JSON, JSON, JSON)
def test_any_json_is_a_pool_or_is_refused(selector: Any, ports: Any, number: Any, protocol: Any) -> None:
    spec = {"selector": selector, "targetPorts": ports, "targetPortNumber": number, "appProtocol": protocol}
    try:
        pool = read_pool({"spec": spec})
    except ObjectError:
        return
    assert 1 <= len(pool.ports) <= 8
    assert pool.query


# pods


def test_only_ready_pods_that_are_not_being_deleted_and_have_an_address_count() -> None:
    assert read_pod(pod()) == Pod("10.0.0.1")
    assert read_pod(pod(ready="False")) is None
    assert read_pod(pod(ready="Unknown")) is None
    assert read_pod(pod(deletionTimestamp="2026-01-01T00:00:00Z")) is None
    assert read_pod(pod(ip="")) is None
    assert read_pod({"metadata": {}, "status": {"podIP": "10.0.0.1"}}) is None


@pytest.mark.parametrize("ip", ["not an address", "10.0.0.1:80", "fe80::1%eth0", "10.0.0.256", "http://x"])
def test_an_address_that_is_none_is_refused(ip: str) -> None:
    with pytest.raises(ObjectError, match="no IP address"):
        read_pod(pod(ip))


@pytest.mark.parametrize(
    ("text", "ports", "faulty"),
    [
        ("8000", {8000}, False),
        (" 8000 , 8001 ", {8000, 8001}, False),
        ("", set(), False),
        ("8000,nonsense", {8000}, True),
        ("nonsense", None, True),
        ("0", None, True),
        ("70000", None, True),
        ("-1,8001", {8001}, True),
        ("٨", None, True),
    ],
)
def test_active_ports_are_read_and_faults_in_them_are_told(
    text: str, ports: set[int] | None, faulty: bool
) -> None:
    read = active(text)
    assert read.active == ports
    assert bool(read.fault) == faulty


def test_the_newer_annotation_goes_before_the_older() -> None:
    both = {"inference.networking.k8s.io/active-ports": "1", "llm-d.ai/active-ports": "2"}
    read = read_pod(pod(annotations=both))
    assert read is not None
    assert read.active == frozenset({2})
    assert active("3", "inference.networking.k8s.io/active-ports").active == frozenset({3})


def test_each_target_port_is_a_rank_of_its_own() -> None:
    found = endpoints(Pool({"a": "b"}, (8000, 8001)), [Pod("10.0.0.1"), Pod("::1")])
    assert found == {
        Endpoint("10.0.0.1:8000", 0),
        Endpoint("10.0.0.1:8001", 1),
        Endpoint("[::1]:8000", 0),
        Endpoint("[::1]:8001", 1),
    }


def test_a_rank_keeps_its_number_when_another_is_inactive() -> None:
    pool = Pool({"a": "b"}, (8000, 8001))
    assert endpoints(pool, [active("8001")]) == {Endpoint("10.0.0.1:8001", 1)}
    assert endpoints(pool, [active("")]) == frozenset()
    assert len(endpoints(pool, [active("nonsense")])) == 2


def test_a_target_port_that_goes_takes_its_endpoints_along() -> None:
    pods = [Pod("10.0.0.1"), Pod("10.0.0.2")]
    before, after = (endpoints(Pool({"a": "b"}, ports), pods) for ports in ((8000, 8001), (8000,)))
    assert {each.address for each in before - after} == {"10.0.0.1:8001", "10.0.0.2:8001"}


def test_ports_that_the_pool_does_not_have_are_told() -> None:
    pool = Pool({"a": "b"}, (8000,))
    faults = port_faults(pool, {"x": active("9"), "y": active("8000"), "z": active("z")})
    assert "9" in faults["x"]
    assert faults.keys() == {"x", "z"}


@given(
    st.lists(PORTS, min_size=1, max_size=8, unique=True),
    st.lists(st.builds(Pod, IPS, LABELS, st.none() | st.frozensets(PORTS, max_size=4)), max_size=6),
)
def test_endpoints_are_the_pods_times_their_active_ports(ports: list[int], pods: list[Pod]) -> None:
    pool = Pool({"a": "b"}, tuple(ports))
    found = endpoints(pool, pods)
    assert found == endpoints(pool, reversed(pods))
    assert len({(each.address, each.rank) for each in found}) == len(found)
    wanted = {
        (one.address, rank)
        for one in pods
        for rank, port in enumerate(ports)
        if one.active is None or port in one.active
    }
    told = set()
    for each in found:
        host, _, port = each.address.rpartition(":")
        assert int(port) == ports[each.rank]
        assert host.startswith("[") == (ipaddress.ip_address(host.strip("[]")).version == 6)
        told.add((host.strip("[]"), each.rank))
    assert told == wanted


@given(JSON, JSON, JSON, JSON)
def test_any_json_is_a_pod_or_none_or_is_refused(
    ip: Any, labels: Any, annotations: Any, conditions: Any
) -> None:
    for rest in (conditions, [{"type": "Ready", "status": "True"}, conditions]):
        entry = {
            "metadata": {"labels": labels, "annotations": annotations},
            "status": {"podIP": ip, "conditions": rest},
        }
        try:
            read = read_pod(entry)
        except ObjectError:
            continue
        if read is not None:
            endpoints(Pool({"a": "b"}, (1,)), [read])


# peers


def test_everybody_in_the_slices_is_a_peer_once_ready_or_not() -> None:
    slices = [
        read_slice({"addressType": "IPv4", "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": True}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": False}},
        ]}),
        read_slice({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.2"]}]}),
        read_slice({"addressType": "IPv6", "endpoints": [{"addresses": ["FD00::1"]}]}),
        read_slice({"addressType": "FQDN", "endpoints": [{"addresses": ["host.example"]}]}),
    ]  # fmt: skip
    assert peers(slices, 9092) == {
        Peer("10.0.0.1", "10.0.0.1:9092"), Peer("10.0.0.2", "10.0.0.2:9092"), Peer("fd00::1", "[fd00::1]:9092"),
    }  # fmt: skip


@given(JSON, JSON)
def test_any_json_is_a_slice(endpoint: Any, addresses: Any) -> None:
    read_slice({"endpoints": endpoint})
    read_slice({"endpoints": [endpoint, {"addresses": addresses}]})


@given(st.lists(st.frozensets(IPS, max_size=5), max_size=5))
def test_peers_are_all_addresses_of_all_slices(slices: list[frozenset[str]]) -> None:
    found = peers(slices, 9092)
    assert {peer.name for peer in found} == set().union(*slices)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("picker", ("home", "picker")),
        ("picker.llama", ("llama", "picker")),
        ("picker.llama.svc.cluster.local:9092", ("llama", "picker")),
    ],
)
def test_a_service_is_found_by_its_dns_name(name: str, place: tuple[str, str]) -> None:
    assert service_of(name, "home") == place


@pytest.mark.parametrize("name", ["10.0.0.1", "[::1]:80", "a b", ""])
def test_what_is_no_service_is_refused(name: str) -> None:
    with pytest.raises(DiscoveryError, match="peer Service"):
        service_of(name, "home")


# objectives and imports


def test_objectives_of_the_pool_give_priorities_by_name() -> None:
    read = {
        "n/critical": read_objective({"spec": {"priority": 10, "poolRef": {"name": "mine"}}}),
        "n/plain": read_objective({"spec": {"poolRef": {"name": "mine"}}}),
        "n/other": read_objective({"spec": {"priority": -1, "poolRef": {"name": "theirs"}}}),
    }
    assert priorities(read, "mine") == {"critical": 10, "plain": 0}


@pytest.mark.parametrize("priority", [True, "1", 1.5, 2**31, -(2**40)])
def test_a_priority_that_is_no_number_is_refused(priority: Any) -> None:
    with pytest.raises(ObjectError, match="priority"):
        read_objective({"spec": {"priority": priority}})


@given(JSON, JSON)
def test_any_json_is_an_objective_or_is_refused(priority: Any, reference: Any) -> None:
    with suppress(ObjectError):
        assert isinstance(read_objective({"spec": {"priority": priority, "poolRef": reference}}), Objective)


def test_an_import_names_the_clusters_of_all_controllers() -> None:
    controllers = [
        {"name": "x/y", "exportingClusters": [{"name": "east"}, {"name": "west"}]},
        {"name": "x/z", "exportingClusters": [{"name": "east"}, {"name": ""}, {"name": 3}]},
        {"name": "x/q"},
    ]
    assert read_import({"status": {"controllers": controllers}}) == {"east", "west"}


@given(JSON)
def test_any_json_is_an_import(value: Any) -> None:
    read_import({"status": value})
    read_import({"status": {"controllers": [value, {"exportingClusters": [value]}]}})
