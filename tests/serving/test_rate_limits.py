"""A gateway's rate limit before or behind the picker, in a real Envoy: who is asked, and what stays booked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.serving.conftest import Gate, OpenGate

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAIRS = [("FULL_DUPLEX_STREAMED", "NONE"), ("BUFFERED", "NONE")]
BODY = b'{"model": "m", "prompt": "x"}'
ALWAYS = {
    "filter_enabled": {"default_value": {"numerator": 100}},
    "filter_enforced": {"default_value": {"numerator": 100}},
}


def limited(*, behind: bool) -> Callable[[dict[str, Any]], None]:
    """One request an hour, judged behind the picker or before it."""

    def change(config: dict[str, Any]) -> None:
        for listener in config["static_resources"]["listeners"]:
            filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
            at = [each["name"] for each in filters].index("envoy.filters.http.ext_proc")
            limit = {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
                "stat_prefix": "limit",
                "token_bucket": {"max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "3600s"},
                **ALWAYS,
            }
            filters.insert(at + behind, {"name": "envoy.filters.http.local_ratelimit", "typed_config": limit})

    return change


async def five(gate: Gate, pair: tuple[str, str]) -> list[int]:
    """The statuses of five requests, one after the other."""
    statuses = []
    for _ in range(5):
        async with gate.client.post(gate.url(pair), data=BODY) as answer:
            statuses.append(answer.status)
    return statuses


async def test_what_is_limited_before_the_picker_never_asks_it(tmp_path: Path, open_gate: OpenGate) -> None:
    async with open_gate(tmp_path, PAIRS, envoy={"change": limited(behind=False)}) as gate:
        for pair in PAIRS:
            gate.renew()
            assert await five(gate, pair) == [200, 429, 429, 429, 429]
            assert len(gate.picks.requests) == 1


async def test_what_is_limited_behind_the_picker_is_picked_for_and_lets_go_at_once(
    tmp_path: Path, open_gate: OpenGate
) -> None:
    async with open_gate(tmp_path, PAIRS, envoy={"change": limited(behind=True)}) as gate:
        for pair in PAIRS:
            gate.renew()
            assert await five(gate, pair) == [200, 429, 429, 429, 429]
            assert len(gate.picks.requests) == 5
            await gate.eventually(lambda: len(gate.picks.overs) == 5)
            assert gate.server.open_streams == 0
        assert len(gate.worker.headers) == 1
