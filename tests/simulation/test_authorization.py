"""What the coordinators' APIs ask the authorizer, and what they say where it refuses: as Kafka's do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from acl_table import codes
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_configs,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from penstock.security.authorizer import (
    CLUSTER,
    Operation,
    Resource,
    ResourceKind,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from penstock.security.principal import Principal
from penstock.simulator.client import Client
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

GROUP = group_resource("g")
TOPIC = topic_resource("t")
ID = transactional_id_resource("x")


class Strict:
    """Forbids some things, and has everything else."""

    def __init__(self) -> None:
        self.forbidden: tuple[tuple[Operation, Resource], ...] = ()

    def forbid(self, *forbidden: tuple[Operation, Resource]) -> None:
        self.forbidden = forbidden

    version = 0

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return (operation, resource) not in self.forbidden

    def refused(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, api_key: int, /
    ) -> None:
        assert (operation, resource) in self.forbidden

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return not any(each == operation and resource.kind is kind for each, resource in self.forbidden)


@dataclass
class Case:
    request: Message
    forbidden: tuple[tuple[Operation, Resource], ...]
    error: ErrorCode
    version: int | None = None


def case(
    request: Message, operation: Operation, resource: Resource, error: ErrorCode, version: int | None = None
) -> Case:
    return Case(request, ((operation, resource),), error, version)


GROUP_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ID_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_FAILED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

READ, WRITE, DELETE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE

join = join_group.JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=[join_group.JoinGroupRequestProtocol(name="range")],
)
commit = offset_commit.OffsetCommitRequest(
    group_id="g",
    topics=[
        offset_commit.OffsetCommitRequestTopic(
            name="t", partitions=[offset_commit.OffsetCommitRequestPartition(committed_offset=1)]
        )
    ],
)
txn_commit = txn_offset_commit.TxnOffsetCommitRequest(
    transactional_id="x",
    group_id="g",
    producer_id=1,
    topics=[
        txn_offset_commit.TxnOffsetCommitRequestTopic(
            name="t", partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition(committed_offset=1)]
        )
    ],
)
delete_offsets = offset_delete.OffsetDeleteRequest(
    group_id="g",
    topics=[
        offset_delete.OffsetDeleteRequestTopic(name="t", partitions=[offset_delete.OffsetDeleteRequestPartition()])
    ],
)
fetch_offsets = offset_fetch.OffsetFetchRequest(
    groups=[
        offset_fetch.OffsetFetchRequestGroup(
            group_id="g", topics=[offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
    ]
)
add_partitions = add_partitions_to_txn.AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="x",
    v3_and_below_producer_id=1,
    v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])],
)
add_offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", group_id="g", producer_id=1)
init = init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
init_two_phase = init_producer_id.InitProducerIdRequest(
    transactional_id="x", transaction_timeout_ms=1000, enable2_pc=True
)
markers = write_txn_markers.WriteTxnMarkersRequest(
    markers=[
        write_txn_markers.WritableTxnMarker(
            producer_id=1, topics=[write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
        )
    ]
)
beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
    group_id="new",
    member_id="m",
    rebalance_timeout_ms=1000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)


def describe_config(kind: ResourceType, name: str) -> Message:
    resource = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name)
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def alter_config(kind: ResourceType, name: str) -> Message:
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


def replace_config(kind: ResourceType, name: str) -> Message:
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    return alter_configs.AlterConfigsRequest(resources=[resource])


CASES = [
    case(find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]), DESCRIBE, GROUP, GROUP_FAILED),
    case(find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), DESCRIBE, ID, ID_FAILED),
    case(join, READ, GROUP, GROUP_FAILED),
    case(
        sync_group.SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range"),
        READ,
        GROUP,
        GROUP_FAILED,
    ),
    case(heartbeat.HeartbeatRequest(group_id="g"), READ, GROUP, GROUP_FAILED),
    case(leave_group.LeaveGroupRequest(group_id="g"), READ, GROUP, GROUP_FAILED),
    case(beat, READ, group_resource("new"), GROUP_FAILED),
    case(beat, DESCRIBE, TOPIC, TOPIC_FAILED),
    case(describe_groups.DescribeGroupsRequest(groups=["g"]), DESCRIBE, GROUP, GROUP_FAILED),
    case(
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["new"]),
        DESCRIBE,
        group_resource("new"),
        GROUP_FAILED,
    ),
    case(consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["new"]), DESCRIBE, TOPIC, TOPIC_FAILED),
    case(delete_groups.DeleteGroupsRequest(groups_names=["g"]), DELETE, GROUP, GROUP_FAILED),
    case(commit, READ, GROUP, GROUP_FAILED, 9),
    case(commit, READ, TOPIC, TOPIC_FAILED, 9),
    case(fetch_offsets, DESCRIBE, GROUP, GROUP_FAILED, 9),
    case(fetch_offsets, DESCRIBE, TOPIC, TOPIC_FAILED, 9),
    case(delete_offsets, DELETE, GROUP, GROUP_FAILED),
    case(delete_offsets, READ, TOPIC, TOPIC_FAILED),
    case(txn_commit, WRITE, ID, ID_FAILED, 3),
    case(txn_commit, READ, GROUP, GROUP_FAILED, 3),
    case(txn_commit, READ, TOPIC, TOPIC_FAILED, 3),
    case(add_partitions, WRITE, ID, ID_FAILED, 3),
    case(add_partitions, WRITE, TOPIC, TOPIC_FAILED, 3),
    case(add_partitions_to_txn.AddPartitionsToTxnRequest(), Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_FAILED, 5),
    case(add_offsets, WRITE, ID, ID_FAILED, 4),
    case(add_offsets, READ, GROUP, GROUP_FAILED, 4),
    case(end_txn.EndTxnRequest(transactional_id="x"), WRITE, ID, ID_FAILED),
    case(init, WRITE, ID, ID_FAILED),
    case(init_two_phase, Operation.TWO_PHASE_COMMIT, ID, ID_FAILED, 6),
    Case(
        init_producer_id.InitProducerIdRequest(transactional_id=None),
        ((Operation.IDEMPOTENT_WRITE, CLUSTER), (WRITE, TOPIC)),
        CLUSTER_FAILED,
    ),
    Case(markers, ((Operation.ALTER, CLUSTER), (Operation.CLUSTER_ACTION, CLUSTER)), CLUSTER_FAILED),
    case(describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]), DESCRIBE, ID, ID_FAILED),
    case(list_config_resources.ListConfigResourcesRequest(), Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_FAILED),
]
for make, operation in (
    (describe_config, Operation.DESCRIBE_CONFIGS),
    (alter_config, Operation.ALTER_CONFIGS),
    (replace_config, Operation.ALTER_CONFIGS),
):
    CASES += [
        case(make(ResourceType.TOPIC, "t"), operation, TOPIC, TOPIC_FAILED),
        case(make(ResourceType.GROUP, "g"), operation, GROUP, GROUP_FAILED),
        case(make(ResourceType.BROKER, "1"), operation, CLUSTER, CLUSTER_FAILED),
    ]


async def prepared(loop: SimulatedLoop, authorizer: Strict) -> BrokerWorld:
    """A topic, a group of each kind, and a transactional id."""
    world = BrokerWorld(
        loop,
        1,
        properties={
            "transaction.two.phase.commit.enable": "true",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        },
        authorizer=authorizer,
    )
    await world.start()
    async with world.client() as client:
        assert await client.create_topic("t") is ErrorCode.NONE
        for kind in (0, 1):
            await succeed(client, find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]))
        for request, version in ((commit, 9), (beat, 1), (init, 6)):
            await succeed(client, request, version)
    return world


async def succeed(client: Client, request: Message, version: int | None = None) -> None:
    """Once the coordinators are there."""
    for _ in range(100):
        found = codes(await client.ask(request, version))
        if not found:
            return
        assert found <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        await asyncio.sleep(0.1)
    raise AssertionError(f"{request} is refused all the time: {found}")


def test_what_is_forbidden_is_refused_and_nothing_else_is() -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        authorizer = Strict()
        world = await prepared(loop, authorizer)
        async with world.client() as client:
            for each in CASES:
                authorizer.forbid(*each.forbidden)
                answer = await client.ask(each.request, each.version)
                assert each.error in codes(answer), (each, answer)
                assert codes(answer) == {each.error}, (each, answer)
            for each in CASES:
                authorizer.forbid()
                answer = await client.ask(each.request, each.version)
                assert each.error not in codes(answer), (each, answer)

    simulate(program, 1)


@pytest.mark.parametrize("alone", [Operation.IDEMPOTENT_WRITE, WRITE])
def test_either_way_makes_an_idempotent_producer(alone: Operation) -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        authorizer = Strict()
        world = await prepared(loop, authorizer)
        authorizer.forbid((alone, CLUSTER if alone is not WRITE else TOPIC))
        async with world.client() as client:
            assert not codes(await client.ask(init_producer_id.InitProducerIdRequest(transactional_id=None)))

    simulate(program, 1)


def test_who_may_not_see_a_thing_does_not_hear_of_it() -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        authorizer = Strict()
        world = await prepared(loop, authorizer)
        async with world.client() as client:
            groups, transactions = list_groups.ListGroupsRequest(), list_transactions.ListTransactionsRequest()
            authorizer.forbid((DESCRIBE, GROUP))
            assert {group.group_id for group in (await client.ask(groups)).groups} == {"g", "new"}
            authorizer.forbid((DESCRIBE, CLUSTER), (DESCRIBE, GROUP), (DESCRIBE, ID))
            assert {group.group_id for group in (await client.ask(groups)).groups} == {"new"}
            assert (await client.ask(transactions)).transaction_states == []
            everything = offset_fetch.OffsetFetchRequest(
                groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)]
            )
            authorizer.forbid((DESCRIBE, TOPIC))
            (group,) = (await client.ask(everything, 9)).groups
            assert (group.error_code, group.topics) == (0, [])

    simulate(program, 1)


def test_what_is_forbidden_of_several_resources_leaves_the_others() -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        authorizer = Strict()
        world = await prepared(loop, authorizer)
        authorizer.forbid((Operation.ALTER_CONFIGS, GROUP))
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=ResourceType.GROUP,
                    resource_name=name,
                    configs=[
                        incremental_alter_configs.AlterableConfig(name="consumer.heartbeat.interval.ms", value="7000")
                    ],
                )
                for name in ("g", "new")
            ]
        )
        async with world.client() as client:
            responses = (await client.ask(request)).responses
            assert {each.resource_name: each.error_code for each in responses} == {"g": GROUP_FAILED, "new": 0}
            listing = list_config_resources.ListConfigResourcesRequest(resource_types=[ResourceType.GROUP])
            assert [each.resource_name for each in (await client.ask(listing)).config_resources] == ["new"]

    simulate(program, 1)
