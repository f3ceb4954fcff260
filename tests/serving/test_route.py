"""Which route a request took reaches the picker through a real Envoy, where its filter is told to say so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from picker.requests.routes import ATTRIBUTES, read_route

if TYPE_CHECKING:
    from tests.serving.conftest import OpenGate

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAIRS = [("FULL_DUPLEX_STREAMED", "NONE"), ("BUFFERED", "NONE"), ("NONE", "NONE")]
NAME = "httproute/llama/vllm/rule/0/match/0/*"


def told(config: dict[str, Any]) -> None:
    """Name every route, and let each filter tell all that is known of it."""
    for listener in config["static_resources"]["listeners"]:
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        manager["route_config"]["virtual_hosts"][0]["routes"][0]["name"] = NAME
        for each in manager["http_filters"]:
            if each["name"] == "envoy.filters.http.ext_proc":
                each["typed_config"]["request_attributes"] = [*ATTRIBUTES, "xds.route_metadata", "request.id"]


async def test_the_route_is_told_in_every_mode(tmp_path: Path, open_gate: OpenGate) -> None:
    async with open_gate(tmp_path, PAIRS, envoy={"change": told}) as gate:
        for pair in PAIRS:
            async with gate.client.post(gate.url(pair), data=b'{"model": "m", "prompt": "x"}') as answer:
                assert answer.status == 200
            route = read_route(gate.picks.requests[-1].attributes)
            assert route is not None
            assert route["name"] == NAME
            assert route["object"] == "httproute llama/vllm"
            assert route["virtual_host"] == "all"
            assert route["cluster"] == "pool"
