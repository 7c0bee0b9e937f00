"""Nodes that would refuse each other's requests do not start, and say which line is missing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.principal import Principal
from penstock.simulator.client import Client, Lost
from penstock.simulator.requests import batch
from penstock.simulator.stories.acl_story import PROPERTIES
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate


async def started_but_for(loop: SimulatedLoop, name: str, super_users: str) -> ClusterWorld:
    """All nodes are ready but this broker, which has other superusers, and is not started yet."""
    world = ClusterWorld(loop, 1, properties=PROPERTIES)
    late = world.machines[name]
    late.properties = {**late.properties, "super.users": super_users}
    others = [machine for machine in world.machines.values() if machine is not late]
    for machine in others:
        machine.start()
    await world.until(lambda: all(machine.is_ready for machine in others), "the others are ready")
    return world


def test_a_broker_that_would_refuse_the_others_does_not_start() -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        world = await started_but_for(loop, "broker-2", "User:root")
        world.machines["broker-2"].start()
        async with asyncio.timeout(60):
            while not world.failures:  # noqa: ASYNC110 - nothing else says so
                await asyncio.sleep(0.1)
        (failure,) = world.failures
        assert "broker-2 cannot start" in failure
        assert "connect to listener PLAINTEXT as User:ANONYMOUS" in failure
        assert "add the line super.users=User:root;User:ANONYMOUS" in failure

    simulate(program, 1)


def test_an_acl_for_the_nodes_is_as_good() -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        world = await started_but_for(loop, "broker-2", "User:root")
        acl = AclCreation(
            resource_type=4,
            resource_name="kafka-cluster",
            principal="User:ANONYMOUS",
            host="*",
            operation=9,
            permission_type=3,
        )
        async with world.client("broker-1") as client:
            (result,) = (await client.ask(CreateAclsRequest(creations=[acl]))).results
            assert result.error_code == ErrorCode.NONE
        world.machines["broker-2"].start()
        await world.until(lambda: world.machines["broker-2"].is_ready, "it starts")

    simulate(program, 1)


async def write(client: Client) -> Any:
    return await client.produce("t", batch(b"v", timestamp=1))


async def read(client: Client) -> Any:
    return await client.fetch("t", 0)


def test_plain_requests_before_the_acls_are_loaded_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """As all other requests do; that of a superuser is answered."""
    quietly()
    authorizer = AclAuthorizer(frozenset({"User:ANONYMOUS"}), is_loaded=lambda: False)

    async def program(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, 1, authorizer=authorizer)
        await world.start()
        assert world.node is not None
        (listener,) = world.node.listeners.of_brokers
        async with world.client() as root:
            assert await root.create_topic("t") is ErrorCode.NONE
            for ask in (write, read):
                before = set(listener.connections)
                async with world.client() as alice:
                    await alice.topics()
                    (connection,) = set(listener.connections) - before
                    connection.authenticated(Principal("User", "alice"))
                    with pytest.raises(Lost):
                        await ask(alice)
                assert (await ask(root)).error_code == ErrorCode.NONE

    with caplog.at_level(logging.INFO, "penstock.router"):
        simulate(program, 1)
    told = [record.getMessage() for record in caplog.records if record.name == "penstock.router"]
    assert [line.partition(": ")[2] for line in told] == ["the ACLs are not loaded yet"] * 2
