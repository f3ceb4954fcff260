"""Whose request it is, and which way it came: clients' and gateways' words, read in bounds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picker import settings
from picker.requests.routes import MAX_LENGTH as LONGEST_ROUTE
from picker.requests.routes import read_route
from picker.requests.tenants import KEPT, MAX_LENGTH, SHOWN, Tenants
from picker.settings import SettingsError


def test_without_a_header_there_are_no_tenants() -> None:
    tenants = Tenants("")
    assert tenants.read({"x-tenant": "a", "": "b"}) == ""
    assert tenants.status() is None
    assert tenants.counts.unnamed == 0


def test_a_tenant_is_read_and_counted() -> None:
    tenants = Tenants("x-tenant")
    assert [tenants.read({"x-tenant": name}) for name in ("gold", " gold ", "silver")] == [
        "gold",
        "gold",
        "silver",
    ]
    assert tenants.read({}) == ""
    status = tenants.status()
    assert status is not None
    assert status["most"] == [
        {"tenant": "gold", "requests": 2, "over": 0},
        {"tenant": "silver", "requests": 1, "over": 0},
    ]
    assert (tenants.counts.named, tenants.counts.unnamed) == (3, 1)


@pytest.mark.parametrize("value", ["x" * (MAX_LENGTH + 1), "a\x00b", "tab\tin", "näme", "\x1b[31m"])
def test_what_cannot_be_shown_is_no_tenant(value: str) -> None:
    tenants = Tenants("x-tenant")
    assert tenants.read({"x-tenant": value}) == ""
    assert tenants.counts.unusable == 1
    assert tenants.status() == {"header": "x-tenant", "most": []}


def test_a_client_that_makes_up_names_neither_fills_memory_nor_hides_who_asks_much() -> None:
    tenants = Tenants("x-tenant")
    for number in range(20_000):
        tenants.read({"x-tenant": f"made-up-{number}"})
        if number % 10 == 0:
            tenants.read({"x-tenant": "real"})
    assert len(tenants._requests) == KEPT
    status = tenants.status()
    assert status is not None
    assert len(status["most"]) == SHOWN
    assert status["most"][0]["tenant"] == "real"


@given(st.lists(st.integers(0, 200), max_size=600))
def test_a_count_is_never_too_low_and_too_high_by_no_more_than_it_says(names: list[int]) -> None:
    tenants, truth = Tenants("t"), Counter(map(str, names))
    for name in map(str, names):
        tenants.read({"t": name})
    for tenant, (number, over) in tenants._requests.items():
        assert number - over <= truth[tenant] <= number
    assert sum(number for number, _ in tenants._requests.values()) == len(names)


@pytest.mark.parametrize("name", ["Authorization", "cookie", "x-api-key", "two words", "x:y", "naïve"])
def test_a_header_that_holds_secrets_or_is_none_stops_the_start(name: str) -> None:
    with pytest.raises(SettingsError, match="PICKER_TENANT_HEADER"):
        settings.load({}, tenant_header=name)


def test_the_name_is_taken_in_any_case() -> None:
    assert settings.load({}, tenant_header="X-Tenant-Id").requests.tenant_header == "x-tenant-id"


# routes


def test_a_gateway_that_says_nothing_of_routes_names_none() -> None:
    assert read_route({}) is None
    assert read_route({"request.id": "7", "xds.route_name": ""}) is None


def test_a_route_of_envoy_gateway_names_its_object() -> None:
    route = read_route(
        {
            "xds.route_name": "httproute/llama/vllm/rule/0/match/0/*",
            "xds.cluster_name": "httproute/llama/vllm/rule/0",
        }
    )
    assert route == {
        "name": "httproute/llama/vllm/rule/0/match/0/*",
        "cluster": "httproute/llama/vllm/rule/0",
        "object": "httproute llama/vllm",
    }


@pytest.mark.parametrize("name", ["default", "httproute", "httproute/", "httproute//x", "a/b/c"])
def test_other_names_are_shown_as_they_are(name: str) -> None:
    assert read_route({"xds.route_name": name}) == {"name": name}


def test_what_is_shown_is_short_and_plain() -> None:
    route = read_route({"xds.route_name": "a\n" + "x" * 10_000})
    assert route is not None
    assert len(route["name"]) == LONGEST_ROUTE
    assert route["name"].startswith("a?x")
