"""A failover keeps what was written; a slow consumer is one, and holds up nobody."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.client import Client

from chaos.injectors import InjectionError
from chaos.injectors.consumer import slow_consumer
from chaos.injectors.failover import failover
from chaos.injectors.servers import valkey_says
from picker.sim.processes import lives
from picker.sim.programs import Replica
from tests.contract.chaos.conftest import Stage


async def test_a_failover_keeps_what_was_written_both_ways_and_leaves_one_server(stage: Stage) -> None:
    pid = (await stage.start_valkey()).pid
    stage.servers.replicas = [Replica("picker-0", "", "", "")]
    wire = await stage.wire("picker-0>plane", stage.servers.valkey)
    await valkey_says(wire.listen, "SET a 1")
    async with failover().into(stage):
        assert not lives(pid)
        assert wire.upstream != stage.servers.valkey
        assert await valkey_says(wire.listen, "GET a") == ["1", ""]
        await valkey_says(wire.listen, "SET b 2")
        standby = wire.upstream
    assert wire.upstream == stage.servers.valkey
    assert await valkey_says(wire.listen, "DBSIZE") == ["2"]
    assert (await valkey_says(wire.listen, "INFO replication"))[1] == "role:master"
    with pytest.raises(ConnectionRefusedError):
        await valkey_says(standby, "PING")
    assert stage.phases == ["begin", "seen", "healing", "healed"]


async def test_a_failover_needs_wires_and_a_server_that_can(stage: Stage) -> None:
    await stage.start_valkey()
    stage.servers.replicas = [Replica("picker-0", "", "", "")]
    with pytest.raises(InjectionError, match="needs a wire on every replica's link"):
        async with failover().into(stage):
            pytest.fail("entered")
    assert stage.servers.children["valkey"].alive
    assert stage.phases[-1] == "healed"


async def test_a_slow_consumer_has_unread_bytes_while_others_are_served(stage: Stage) -> None:
    await stage.start_nats()
    client = Client()
    await client.connect([stage.servers.nats], connect_timeout=5)
    try:
        async with slow_consumer().into(stage):
            assert stage.evidence("seen")["unread"] >= 4096
            subscription = await client.subscribe("a")
            await asyncio.sleep(0.05)
            for number in range(50):
                await client.publish("a", b"%d" % number)
                assert (await subscription.next_msg(timeout=5)).data == b"%d" % number
        assert stage.evidence("healed")["filler_bytes"] > 0
        assert stage.servers.children["nats"].alive
    finally:
        await client.close()
