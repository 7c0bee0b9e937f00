"""A simulated node with ACLs, for tests of what its clients may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from acl_table import Grant, codes
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    consumer_group_heartbeat,
    create_acls,
    delete_acls,
    describe_cluster,
    find_coordinator,
    init_producer_id,
)
from penstock.security.acls import Acl, PatternType, Permission
from penstock.security.principal import Principal
from penstock.simulator.client import Client, connected
from penstock.simulator.stories.broker_world import HOST, PORT, BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

CONTROLLER_PORT: Final = 9093
ALICE: Final = Principal("User", "alice")
ROOT: Final = Principal("User", "root")
JOIN: Final = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
    group_id="new",
    member_id="m",
    rebalance_timeout_ms=1000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)


class Secured:
    """A node with ACLs, a superuser, and a client without rights of its own."""

    def __init__(self, loop: SimulatedLoop, **properties: str) -> None:
        self.world = BrokerWorld(
            loop,
            1,
            properties={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:root",
                "listeners": f"PLAINTEXT://{HOST}:{PORT},CONTROLLER://{HOST}:{CONTROLLER_PORT}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@{HOST}:{CONTROLLER_PORT}",
                "transaction.two.phase.commit.enable": "true",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                **properties,
            },
        )
        self._open = AsyncExitStack()

    async def start(self) -> None:
        await self.world.start()
        self.root = await self.client(ROOT)
        assert await self.root.create_topic("t") is ErrorCode.NONE
        for kind in (0, 1):
            find = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
            await self.eventually(find)
        await self.eventually(JOIN)
        await self.eventually(init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000))

    async def client(self, principal: Principal, port: int = PORT) -> Client:
        assert self.world.node is not None
        listeners = self.world.node.listeners
        listener = (listeners.of_brokers if port == PORT else listeners.of_controllers)[0]
        before = set(listener.connections)
        client = await self._open.enter_async_context(connected(HOST, port, 30.0))
        # Once it has answered, the connection is there.
        await client.ask(describe_cluster.DescribeClusterRequest(endpoint_type=1 if port == PORT else 2))
        (connection,) = set(listener.connections) - before
        connection.authenticated(principal)
        return client

    async def eventually(self, request: Message) -> None:
        for _ in range(1000):
            found = codes(await self.root.ask(request))
            if not found:
                return
        raise AssertionError(f"{request}: {found}")

    async def grant(self, *grants: Grant, permission: Permission = Permission.ALLOW, who: str = "User:alice") -> None:
        """Exactly these, from now on."""
        everything: dict[str, Any] = {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
        nothing: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        wipe = delete_acls.DeleteAclsFilter(**everything, **nothing)
        assert not codes(await self.root.ask(delete_acls.DeleteAclsRequest(filters=[wipe])))
        await self.add(*(Acl(r.kind, r.name, PatternType.LITERAL, who, "*", op, permission) for op, r in grants))

    async def add(self, *acls: Acl) -> None:
        creations = [
            create_acls.AclCreation(
                resource_type=acl.kind,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        assert not codes(await self.root.ask(create_acls.CreateAclsRequest(creations=creations)))

    async def close(self) -> None:
        await self._open.aclose()


def with_secured(program: Callable[[Secured], Awaitable[None]], **properties: str) -> None:
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        secured = Secured(loop, **properties)
        await secured.start()
        await program(secured)
        await secured.close()

    simulate(run, 1)
