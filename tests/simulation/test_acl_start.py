"""Nodes that would refuse each other's requests do not start, and say which line is missing."""

from __future__ import annotations

import asyncio

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.simulator.stories.acl_story import PROPERTIES
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
