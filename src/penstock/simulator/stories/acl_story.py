"""Story: a cluster with ACLs that change all the time, clients that are let in and shut out, nodes that crash.

A superuser creates and deletes ACLs, through any broker. Two clients write, read, look at metadata, and ask the
controller (through a broker, in an Envelope) whether they might create topics. Each answer is compared with what the
ACLs say that the deciding node knew, by a reference that reads all of them: a client that is denied gets
TOPIC_AUTHORIZATION_FAILED (`DeniedIsRefused`), one that is allowed does not (`AllowedIsServed`). Answers during which
that node learned of other ACLs are left out. Brokers and controllers crash and lose power, all of them at once, too; in
the end every ACL that was acknowledged is there (`AclsSurvive`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any, Final

from penstock.metadata.acls import AclsImage
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.security.acls import Acl, PatternType, Permission
from penstock.security.authorizer import Operation, ResourceKind
from penstock.security.principal import Principal
from penstock.simulator import requests
from penstock.simulator.client import FETCH_VERSION, PRODUCE_VERSION, Client, Lost
from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.story import StoryResult, Violation
from penstock.simulator.twins.loop import SimulatedLoop

SECONDS: Final = 20.0
TOPICS: Final = ("a", "ab", "abc", "b")
USERS: Final = ("alice", "bob")
ROOT: Final = "root"
EVENTS = (
    "acls created",
    "acls deleted",
    "allowed",
    "denied",
    "decided by the controller",
    "crashes",
    "power losses",
    "cold starts",
)
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ROOT}",
    "auto.create.topics.enable": "false",
}
_IMPLY_DESCRIBE: Final = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)


def allows(acls: Iterable[Acl], user: str, operation: Operation, topic: str) -> bool:
    """The reference. All hosts are `*` here."""
    found = set()
    for acl in acls:
        implied = acl.permission == Permission.ALLOW and operation is Operation.DESCRIBE
        if (
            acl.kind == ResourceKind.TOPIC
            and (topic.startswith(acl.name) if acl.pattern_type == PatternType.PREFIXED else acl.name in (topic, "*"))
            and acl.principal in (f"User:{user}", "User:*")
            and (acl.operation in (operation, Operation.ALL) or (implied and acl.operation in _IMPLY_DESCRIBE))
        ):
            found.add(acl.permission)
    return found == {Permission.ALLOW}


class AclStory:
    def __init__(self, loop: SimulatedLoop, seed: int, seconds: float) -> None:
        self.chance = random.Random(f"{seed}/acls")
        self.events: Counter[str] = Counter()
        self.seconds = seconds
        self.world = ClusterWorld(loop, seed, brokers=2, properties=PROPERTIES)
        self.moments = self.world.moments
        # What the superuser knows: ACLs that are certainly there, and those whose request got no answer.
        self.certain: set[Acl] = set()
        self.connecting = asyncio.Lock()  # one at a time, so that a new connection is known to be the client's
        self.doubtful: set[Acl] = set()

    async def run(self) -> None:
        await self.world.start_all()
        async with AsyncExitStack() as stack:
            root = await self.connect(stack, self.world.brokers[0], ROOT)
            for name in TOPICS:
                topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                await root.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        until = self.world.loop.time() + self.seconds
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.administrate(until))
            for user in USERS:
                tasks.create_task(self.use(user, until))
            tasks.create_task(self.break_things(until))
        await self.world.start_all()
        await self.check_end()

    # -- clients ----------------------------------------------------------------------------------------------------

    async def connect(self, stack: AsyncExitStack, machine: Machine, user: str) -> Client:
        """A client whose connection has been authenticated, as far as the broker knows."""
        if machine.node is None or not machine.is_ready:
            raise Lost
        (listener,) = machine.node.listeners.of_brokers
        async with self.connecting:
            before = set(listener.connections)
            client = await stack.enter_async_context(self.world.client(machine.name, patience=20.0))
            await client.ask(DescribeClusterRequest(endpoint_type=1))
            new = set(listener.connections) - before
        (connection,) = (each for each in new if each.peer_host not in self.world.machines)
        connection.authenticated(Principal("User", user))
        return client

    async def administrate(self, until: float) -> None:
        while self.world.loop.time() < until:
            try:
                async with AsyncExitStack() as stack:
                    client = await self.connect(stack, self.chance.choice(self.world.brokers), ROOT)
                    while self.world.loop.time() < until:
                        await self.change(client)
                        await asyncio.sleep(self.chance.choice((0.01, 0.1, 1.0)))
            except Lost:
                await asyncio.sleep(0.2)

    async def change(self, client: Client) -> None:
        known = sorted(self.certain)
        if known and self.chance.random() < len(known) / 12:
            gone = self.chance.choice(known)
            self.certain.discard(gone)
            self.doubtful.add(gone)
            response = await client.ask(DeleteAclsRequest(filters=[_filter(gone)]))
            if not any(result.error_code for result in response.filter_results):
                self.doubtful.discard(gone)
                self.events["acls deleted"] += 1
            return
        acl = Acl(
            ResourceKind.TOPIC,
            self.chance.choice((*TOPICS, "*")),
            self.chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            f"User:{self.chance.choice((*USERS, '*'))}",
            "*",
            self.chance.choice((Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.ALL)),
            self.chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
        )
        if acl in self.certain:
            return
        self.doubtful.add(acl)
        response = await client.ask(CreateAclsRequest(creations=[_creation(acl)]))
        if not any(result.error_code for result in response.results):
            self.doubtful.discard(acl)
            self.certain.add(acl)
            self.events["acls created"] += 1

    async def use(self, user: str, until: float) -> None:
        while self.world.loop.time() < until:
            machine = self.chance.choice(self.world.brokers)
            try:
                async with AsyncExitStack() as stack:
                    client = await self.connect(stack, machine, user)
                    favourite = self.chance.choice(TOPICS)
                    for _ in range(self.chance.choice((1, 10, 100))):
                        topic = favourite if self.chance.random() < 0.7 else self.chance.choice(TOPICS)
                        await self.ask(client, machine, user, topic)
                        await asyncio.sleep(self.chance.choice((0.0, 0.01, 0.1)))
            except Lost:
                await asyncio.sleep(0.2)

    async def ask(self, client: Client, machine: Machine, user: str, topic: str) -> None:
        operation, request, version = self.chance.choice(
            (
                (Operation.WRITE, requests.produce_request(topic, requests.batch("v", timestamp=1)), PRODUCE_VERSION),
                (Operation.READ, requests.fetch_request(topic), FETCH_VERSION),
                (Operation.DESCRIBE, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), None),
                (Operation.CREATE, _question(topic), None),
            )
        )
        is_controllers = operation is Operation.CREATE
        decides = self.world.active_controller() if is_controllers else machine
        before = _known(decides)
        answer = await client.ask(request, version)
        if is_controllers and self.world.active_controller() is not decides:
            return
        after = _known(decides)
        if before is None or after is not before:
            return
        is_refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED in _codes(answer)
        if is_controllers and not is_refused and _codes(answer) - {ErrorCode.TOPIC_ALREADY_EXISTS}:
            return  # the controller did not answer
        is_allowed = allows(before, user, operation, topic)
        self.events["allowed" if is_allowed else "denied"] += 1
        self.events["decided by the controller"] += is_controllers
        if is_allowed == is_refused:
            law = "AllowedIsServed" if is_allowed else "DeniedIsRefused"
            where = "" if decides is None else decides.name
            raise Violation(law, f"{where}: {operation.name} of {topic} by {user}, with {sorted(before)}: {answer}")

    # -- faults -----------------------------------------------------------------------------------------------------

    async def break_things(self, until: float) -> None:
        while self.world.loop.time() < until:
            await asyncio.sleep(self.chance.choice((1.0, 5.0)))
            machines = list(self.world.machines.values())
            victims = machines if self.chance.random() < 0.15 else [self.chance.choice(machines)]
            loses_power = self.chance.random() < 0.3
            for machine in victims:
                if machine.runs:
                    machine.power_loss() if loses_power else machine.crash()
            self.events["power losses" if loses_power else "crashes"] += 1
            self.events["cold starts"] += len(victims) > 1
            await asyncio.sleep(self.chance.choice((0.1, 2.0)))
            await self.world.start_all()

    async def check_end(self) -> None:
        image = await self.world.settled()
        there = set(image.acls)
        lost, unknown = self.certain - there, there - self.certain - self.doubtful
        if lost or unknown:
            raise Violation("AclsSurvive", f"lost: {sorted(lost)}; not requested: {sorted(unknown)}")


def _known(machine: Machine | None) -> AclsImage | None:
    if machine is None or machine.node is None or not machine.is_ready:
        return None
    return machine.image.acls


def _question(topic: str) -> CreateTopicsRequest:
    creatable = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[creatable], timeout_ms=10_000, validate_only=True)


def _codes(message: Any) -> set[int]:
    found = set()
    for name in message.__schema__.names:
        value = getattr(message, name)
        if name == "error_code":
            found.add(value)
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Message):
                found |= _codes(each)
    return found - {ErrorCode.NONE}


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.kind,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(acl: Acl) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=acl.kind,
        resource_name_filter=acl.name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def play(seed: int, seconds: float = SECONDS) -> StoryResult:
    return play_on_loop(seed, lambda loop: AclStory(loop, seed, seconds))
