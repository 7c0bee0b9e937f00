"""What each API needs, row by row, with real ACLs on a node: allowed with exactly the needed ACLs, and denied without
any one of them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.broker.apis import BROKER_APIS
from penstock.broker.controller_apis import CONTROLLER_APIS
from penstock.broker.net.router import key_of
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.model.ids import uuid_text
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    controller_registration,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    read_share_group_state,
    read_share_group_state_summary,
    remove_raft_voter,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    update_raft_voter,
    vote,
    write_share_group_state,
    write_txn_markers,
)
from penstock.security.acls import Acl, PatternType, Permission
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
from penstock.simulator import requests
from penstock.simulator.client import Client, Lost, connected
from penstock.simulator.requests import batch
from penstock.simulator.stories.broker_world import HOST, PORT, BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

CONTROLLER_PORT = 9093
ALICE = Principal("User", "alice")
ROOT = Principal("User", "root")
TOPIC, GROUP, ID = topic_resource("t"), group_resource("g"), transactional_id_resource("x")
READ, WRITE, CREATE, DELETE, ALTER = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, CLUSTER_ACTION = Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
T, G, C, X = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
ERRORS = {T, G, C, X, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED}

Grant = tuple[Operation, Resource]

# The requests to share coordinators, with the parts that name a share partition.
SHARE_STATE: list[tuple[Any, Any, Any]] = [
    (
        initialize_share_group_state.InitializeShareGroupStateRequest,
        initialize_share_group_state.InitializeStateData,
        initialize_share_group_state.Partition,
    ),
    (
        read_share_group_state.ReadShareGroupStateRequest,
        read_share_group_state.ReadStateData,
        read_share_group_state.Partition,
    ),
    (
        write_share_group_state.WriteShareGroupStateRequest,
        write_share_group_state.WriteStateData,
        write_share_group_state.Partition,
    ),
    (
        delete_share_group_state.DeleteShareGroupStateRequest,
        delete_share_group_state.DeleteStateData,
        delete_share_group_state.Partition,
    ),
    (
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
        read_share_group_state_summary.ReadStateSummaryData,
        read_share_group_state_summary.Partition,
    ),
]


@dataclass
class Row:
    """`ways`: each a set of grants that is enough. `errors`: that of each grant that is missing, or of all."""

    request: Message
    ways: list[list[Grant]]
    error: dict[Grant, ErrorCode]
    version: int | None = None
    on_controller: bool = False


def row(request: Message, *needs: tuple[Operation, Resource, ErrorCode], version: int | None = None) -> Row:
    grants = [(operation, resource) for operation, resource, _ in needs]
    return Row(request, [grants], {(each[0], each[1]): each[2] for each in needs}, version)


def either(request: Message, error: ErrorCode, *grants: Grant, version: int | None = None) -> Row:
    return Row(request, [[grant] for grant in grants], dict.fromkeys(grants, error), version)


def controller(request: Message, operation: Operation = CLUSTER_ACTION, version: int | None = None) -> Row:
    grant = (operation, CLUSTER)
    return Row(request, [[grant]], {grant: C}, version, on_controller=True)


def config(module: Any, kind: ResourceType, name: str) -> Message:
    if module is describe_configs:
        return describe_configs.DescribeConfigsRequest(
            resources=[describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name)]
        )
    request = (
        alter_configs.AlterConfigsRequest
        if module is alter_configs
        else incremental_alter_configs.IncrementalAlterConfigsRequest
    )
    return request(resources=[module.AlterConfigsResource(resource_type=kind, resource_name=name)], validate_only=True)


def produce(transactional_id: str | None = None) -> Message:
    request: Any = requests.produce_request("t", batch(b"v", timestamp=1), acks=-1, timeout_ms=1000)
    request.transactional_id = transactional_id
    return request  # type: ignore[no-any-return]


def auto_created(name: str, grant: Grant) -> Row:
    wanted = metadata.MetadataRequestTopic(name=name)
    request = metadata.MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)
    return row(request, (DESCRIBE, topic_resource(name), T), (*grant, T))


follower_fetch = requests.fetch_request("t", 0)
follower_fetch.replica_id = 7
t = topic_resource
new_topic = create_topics.CreatableTopic(name="new", num_partitions=1, replication_factor=1)

BROKER_ROWS = [
    row(produce(), (WRITE, TOPIC, T), version=12),
    row(produce("x"), (WRITE, ID, X), (WRITE, TOPIC, T), version=12),
    row(requests.fetch_request("t", 0), (READ, TOPIC, T), version=12),
    row(requests.fetch_request("nowhere", 0), (READ, t("nowhere"), T), version=12),
    row(follower_fetch, (CLUSTER_ACTION, CLUSTER, T), version=12),
    row(
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="t", partitions=[list_offsets.ListOffsetsPartition(timestamp=-1)]
                )
            ],
        ),
        (DESCRIBE, TOPIC, T),
    ),
    row(
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]),
        (DESCRIBE, TOPIC, T),
    ),
    auto_created("one", (CREATE, CLUSTER)),
    auto_created("two", (CREATE, t("two"))),
    row(
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")]
        ),
        (DESCRIBE, TOPIC, T),
    ),
    either(
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t", partitions=[offset_for_leader_epoch.OffsetForLeaderPartition()]
                )
            ]
        ),
        T,
        (DESCRIBE, TOPIC),
        (CLUSTER_ACTION, CLUSTER),
    ),
    row(find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]), (DESCRIBE, GROUP, G)),
    row(find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), (DESCRIBE, ID, X)),
    row(
        join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range")],
        ),
        (READ, GROUP, G),
    ),
    row(sync_group.SyncGroupRequest(group_id="g", protocol_type="c", protocol_name="r"), (READ, GROUP, G)),
    row(heartbeat.HeartbeatRequest(group_id="g"), (READ, GROUP, G)),
    row(leave_group.LeaveGroupRequest(group_id="g"), (READ, GROUP, G)),
    row(
        offset_commit.OffsetCommitRequest(
            group_id="g",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name="t", partitions=[offset_commit.OffsetCommitRequestPartition()]
                )
            ],
        ),
        (READ, GROUP, G),
        (READ, TOPIC, T),
        version=9,
    ),
    row(
        offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    group_id="g", topics=[offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
                )
            ]
        ),
        (DESCRIBE, GROUP, G),
        (DESCRIBE, TOPIC, T),
        version=9,
    ),
    row(
        offset_delete.OffsetDeleteRequest(
            group_id="g",
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name="t", partitions=[offset_delete.OffsetDeleteRequestPartition()]
                )
            ],
        ),
        (DELETE, GROUP, G),
        (READ, TOPIC, T),
    ),
    row(describe_groups.DescribeGroupsRequest(groups=["g"]), (DESCRIBE, GROUP, G)),
    row(delete_groups.DeleteGroupsRequest(groups_names=["none"]), (DELETE, group_resource("none"), G)),
    row(
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        (READ, group_resource("new"), G),
        (DESCRIBE, TOPIC, T),
    ),
    row(
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["new"]),
        (DESCRIBE, group_resource("new"), G),
        (DESCRIBE, TOPIC, T),
    ),
    row(
        share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id="shared", member_id="m", subscribed_topic_names=["t"]
        ),
        (READ, group_resource("shared"), G),
        (DESCRIBE, TOPIC, T),
    ),
    row(share_group_describe.ShareGroupDescribeRequest(group_ids=["none"]), (DESCRIBE, group_resource("none"), G)),
    row(share_fetch.ShareFetchRequest(group_id="shared", member_id="m"), (READ, group_resource("shared"), G)),
    row(
        share_acknowledge.ShareAcknowledgeRequest(group_id="shared", member_id="m"),
        (READ, group_resource("shared"), G),
    ),
    row(
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[
                describe_share_group_offsets.Group(
                    group_id="moved", topics=[describe_share_group_offsets.Topic(topic_name="t", partitions=[0])]
                )
            ]
        ),
        (DESCRIBE, group_resource("moved"), G),
        (DESCRIBE, TOPIC, T),
    ),
    row(
        alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id="moved",
            topics=[
                alter_share_group_offsets.Topic(topic_name="t", partitions=[alter_share_group_offsets.Partition()])
            ],
        ),
        (READ, group_resource("moved"), G),
        (READ, TOPIC, T),
    ),
    row(
        delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id="moved", topics=[delete_share_group_offsets.Topic(topic_name="t")]
        ),
        (DELETE, group_resource("moved"), G),
        (READ, TOPIC, T),
    ),
    *(
        row(
            request(group_id="shared", topics=[topic(topic_id=b"x" * 16, partitions=[partition()])]),
            (CLUSTER_ACTION, CLUSTER, C),
        )
        for request, topic, partition in SHARE_STATE
    ),
    row(
        find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=[f"shared:{uuid_text(b'x' * 16)}:0"]),
        (CLUSTER_ACTION, CLUSTER, C),
        version=6,
    ),
    row(init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), (WRITE, ID, X)),
    row(
        init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000, enable2_pc=True),
        (WRITE, ID, X),
        (Operation.TWO_PHASE_COMMIT, ID, X),
        version=6,
    ),
    either(
        init_producer_id.InitProducerIdRequest(transactional_id=None),
        C,
        (Operation.IDEMPOTENT_WRITE, CLUSTER),
        (WRITE, t("any topic")),
    ),
    row(
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        (WRITE, ID, X),
        (WRITE, TOPIC, T),
        version=3,
    ),
    row(add_partitions_to_txn.AddPartitionsToTxnRequest(), (CLUSTER_ACTION, CLUSTER, C), version=5),
    row(
        add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", group_id="g", producer_id=1),
        (WRITE, ID, X),
        (READ, GROUP, G),
    ),
    row(
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=1,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name="t", partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition()]
                )
            ],
        ),
        (WRITE, ID, X),
        (READ, GROUP, G),
        (READ, TOPIC, T),
        version=3,
    ),
    row(end_txn.EndTxnRequest(transactional_id="x"), (WRITE, ID, X)),
    either(
        write_txn_markers.WriteTxnMarkersRequest(
            markers=[
                write_txn_markers.WritableTxnMarker(
                    producer_id=1, topics=[write_txn_markers.WritableTxnMarkerTopic(name="t", partition_indexes=[7])]
                )
            ]
        ),
        C,
        (ALTER, CLUSTER),
        (CLUSTER_ACTION, CLUSTER),
    ),
    row(describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]), (DESCRIBE, ID, X)),
    row(
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
        (READ, TOPIC, T),
    ),
    # Later versions show the settings of the new topic, which needs another ACL.
    either(
        create_topics.CreateTopicsRequest(topics=[new_topic], validate_only=True),
        T,
        (CREATE, CLUSTER),
        (CREATE, t("new")),
        version=4,
    ),
    either(
        delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="nowhere")]),
        T,
        (DELETE, CLUSTER),
        (DELETE, t("nowhere")),
        (DESCRIBE, t("nowhere")),
    ),
    row(
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="t", partitions=[delete_records.DeleteRecordsPartition(offset=0)]
                )
            ]
        ),
        (DELETE, TOPIC, T),
    ),
    row(
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=9, assignments=None)], validate_only=True
        ),
        (ALTER, TOPIC, T),
    ),
    row(list_config_resources.ListConfigResourcesRequest(), (DESCRIBE_CONFIGS, CLUSTER, C)),
    row(
        describe_acls.DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        ),
        (DESCRIBE, CLUSTER, C),
    ),
    row(
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=2, resource_name="", principal="User:a", host="*", operation=3, permission_type=3
                )
            ]
        ),
        (ALTER, CLUSTER, C),
    ),
    row(
        delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsFilter(
                    resource_type_filter=2, resource_name_filter="none", pattern_type_filter=3, principal_filter=None,
                    host_filter=None, operation=1, permission_type=1,
                )
            ]
        ),
        (ALTER, CLUSTER, C),
    ),
    row(describe_log_dirs.DescribeLogDirsRequest(topics=None), (DESCRIBE, CLUSTER, C)),
    row(describe_quorum.DescribeQuorumRequest(), (DESCRIBE, CLUSTER, C)),
    row(list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None), (DESCRIBE, CLUSTER, C)),
    row(
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere", topics=[alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])]
                )
            ]
        ),
        (ALTER, CLUSTER, C),
    ),
    row(elect_leaders.ElectLeadersRequest(topic_partitions=None), (ALTER, CLUSTER, C)),
    row(alter_partition_reassignments.AlterPartitionReassignmentsRequest(), (ALTER, CLUSTER, C)),
    row(update_features.UpdateFeaturesRequest(validate_only=True), (ALTER, CLUSTER, C)),
    row(unregister_broker.UnregisterBrokerRequest(broker_id=99), (ALTER, CLUSTER, C)),
    row(unregister_controller.UnregisterControllerRequest(controller_id=99), (ALTER, CLUSTER, C)),
    row(describe_client_quotas.DescribeClientQuotasRequest(), (DESCRIBE_CONFIGS, CLUSTER, C)),
    row(
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.AlterClientQuotasRequestEntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="bob")],
                    ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9)],
                )
            ],
            validate_only=True,
        ),
        (ALTER_CONFIGS, CLUSTER, C),
    ),
    row(describe_user_scram_credentials.DescribeUserScramCredentialsRequest(), (DESCRIBE, CLUSTER, C)),
    row(
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="bob", mechanism=1)]
        ),
        (ALTER, CLUSTER, C),
    ),
    row(
        create_delegation_token.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob"),
        (
            Operation.CREATE_TOKENS,
            Resource(ResourceKind.USER, "User:bob"),
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ),
    ),
    row(add_raft_voter.AddRaftVoterRequest(), (ALTER, CLUSTER, C)),
    row(remove_raft_voter.RemoveRaftVoterRequest(), (ALTER, CLUSTER, C)),
]  # fmt: skip
for module, operation in (
    (describe_configs, DESCRIBE_CONFIGS),
    (alter_configs, ALTER_CONFIGS),
    (incremental_alter_configs, ALTER_CONFIGS),
):
    BROKER_ROWS += [
        row(config(module, ResourceType.TOPIC, "t"), (operation, TOPIC, T)),
        row(config(module, ResourceType.GROUP, "g"), (operation, GROUP, G)),
        row(config(module, ResourceType.BROKER, "1"), (operation, CLUSTER, C)),
        row(config(module, ResourceType.CLIENT_METRICS, "m"), (operation, CLUSTER, C)),
    ]
CONTROLLER_ROWS = [
    controller(vote.VoteRequest()),
    controller(begin_quorum_epoch.BeginQuorumEpochRequest()),
    controller(end_quorum_epoch.EndQuorumEpochRequest()),
    controller(fetch.FetchRequest(), version=17),
    controller(fetch_snapshot.FetchSnapshotRequest()),
    controller(update_raft_voter.UpdateRaftVoterRequest()),
    controller(alter_partition.AlterPartitionRequest(broker_id=99)),
    controller(broker_registration.BrokerRegistrationRequest(broker_id=99)),
    controller(broker_heartbeat.BrokerHeartbeatRequest(broker_id=99)),
    controller(controller_registration.ControllerRegistrationRequest(controller_id=1)),
    controller(allocate_producer_ids.AllocateProducerIdsRequest(broker_id=99)),
    controller(assign_replicas_to_dirs.AssignReplicasToDirsRequest(broker_id=99)),
    controller(envelope.EnvelopeRequest(request_principal=b"", client_host_address=b"")),
    controller(describe_cluster.DescribeClusterRequest(endpoint_type=2), ALTER),
]


def codes(message: Any) -> set[int]:
    """Every error code in a response."""
    found = set()
    for name in message.__schema__.names:
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.add(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                found |= codes(each)
    return found - {0}


class Secured:
    """A node with ACLs, a superuser, and a client that is nobody special."""

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
        for ready in BROKER_ROWS:
            if isinstance(ready.request, consumer_group_heartbeat.ConsumerGroupHeartbeatRequest):
                await self.eventually(ready.request)
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


def name_of(each: Row) -> str:
    return f"{type(each.request).__name__} v{each.version} {each.ways}"


@pytest.mark.parametrize("rows", [BROKER_ROWS, CONTROLLER_ROWS], ids=["broker", "controller"])
def test_each_row_is_allowed_with_its_acls_and_denied_without_any_of_them(rows: list[Row]) -> None:
    quietly()
    failures: list[tuple[object, ...]] = []

    async def program(loop: SimulatedLoop) -> None:
        secured = Secured(loop)
        await secured.start()
        alice = await secured.client(ALICE, CONTROLLER_PORT if rows is CONTROLLER_ROWS else PORT)
        for each in rows:
            for way in each.ways:
                for missing in way:
                    await secured.grant(*(grant for grant in way if grant != missing))
                    found = codes(await alice.ask(each.request, each.version)) & ERRORS
                    if found != {each.error[missing]}:
                        failures.append((name_of(each), "without", missing, found))
                await secured.grant(*way)
                found = codes(await alice.ask(each.request, each.version)) & ERRORS
                if found:
                    failures.append((name_of(each), "with", way, found))
        await secured.close()

    simulate(program, 1)
    assert not failures, "\n".join(map(str, failures))


def test_every_api_has_a_row_or_needs_nothing() -> None:
    covered = {each.request.__schema__.key for each in BROKER_ROWS + CONTROLLER_ROWS}
    free_or_filtered = {"API_VERSIONS", "DESCRIBE_CLUSTER", "LIST_GROUPS", "LIST_TRANSACTIONS"}
    free_or_filtered |= {"GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"}
    # Answered by whoever the client has proved to be: its own login, and tokens it may renew.
    free_or_filtered |= {"SASL_HANDSHAKE", "SASL_AUTHENTICATE", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN"}
    free_or_filtered.add("DESCRIBE_DELEGATION_TOKEN")
    for api in (*BROKER_APIS, *CONTROLLER_APIS):
        assert key_of(api) in covered or key_of(api).name in free_or_filtered, key_of(api).name


def with_secured(program: Callable[[Secured], Awaitable[None]], **properties: str) -> None:
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        secured = Secured(loop, **properties)
        await secured.start()
        await program(secured)
        await secured.close()

    simulate(run, 1)


def test_who_may_not_describe_a_topic_cannot_tell_whether_it_exists() -> None:
    """Named topics get the same answer, byte for byte, whether or not they exist."""

    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        await secured.root.create_topic("h")

        async def answers(make: Callable[[str], Message], version: int | None = None) -> None:
            there, nowhere = [str(await alice.ask(make(name), version)) for name in ("h", "n")]
            assert there.replace("'h'", "'n'") == nowhere
            assert "29" in there

        await answers(lambda name: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)]))
        await answers(
            lambda name: describe_topic_partitions.DescribeTopicPartitionsRequest(
                topics=[describe_topic_partitions.TopicRequest(name=name)]
            )
        )
        await answers(lambda name: requests.fetch_request(name, 0), 12)
        await answers(lambda name: requests.produce_request(name, batch(b"v", timestamp=1)), 12)
        await answers(
            lambda name: list_offsets.ListOffsetsRequest(
                topics=[list_offsets.ListOffsetsTopic(name=name, partitions=[list_offsets.ListOffsetsPartition()])]
            )
        )
        await answers(
            lambda name: delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=name)])
        )
        await answers(lambda name: config(describe_configs, ResourceType.TOPIC, name))
        await answers(lambda name: config(incremental_alter_configs, ResourceType.TOPIC, name))

    with_secured(program)


def test_lists_and_ids_show_only_what_may_be_described() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        everything = metadata.MetadataRequest(topics=None)
        (topic_id,) = (each.topic_id for each in (await secured.root.ask(everything)).topics if each.name == "t")
        by_id = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=None, topic_id=topic_id)])
        by_none = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=None, topic_id=b"x" * 16)])
        all_partitions = describe_topic_partitions.DescribeTopicPartitionsRequest()

        async def seen() -> tuple[list[str], list[str], list[str], list[str]]:
            groups = await alice.ask(list_groups.ListGroupsRequest())
            transactions = await alice.ask(list_transactions.ListTransactionsRequest())
            return (
                sorted(each.name for each in (await alice.ask(everything)).topics),
                sorted(each.name for each in (await alice.ask(all_partitions)).topics),
                sorted(each.group_id for each in groups.groups),
                sorted(each.transactional_id for each in transactions.transaction_states),
            )

        await secured.grant()
        assert await seen() == ([], [], [], [])
        (refused,) = (await alice.ask(by_id)).topics
        assert (refused.error_code, refused.name, refused.topic_id) == (T, None, topic_id)
        (unknown,) = (await alice.ask(by_none)).topics
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await secured.grant((READ, TOPIC), (READ, group_resource("new")), (WRITE, ID))  # each implies Describe
        assert await seen() == (["t"], ["t"], ["new"], ["x"])
        (shown,) = (await alice.ask(by_id)).topics
        assert (shown.error_code, shown.name) == (0, "t")
        await secured.grant((DESCRIBE, CLUSTER))
        assert (await seen())[2] == ["new"]

    with_secured(program)


def test_authorized_operations_are_bits() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        asks = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
        )
        cluster = describe_cluster.DescribeClusterRequest(endpoint_type=1, include_cluster_authorized_operations=True)
        groups = describe_groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)

        def bits(*operations: Operation) -> int:
            return sum(1 << operation for operation in operations)

        await secured.grant((WRITE, TOPIC), (ALTER_CONFIGS, TOPIC), (ALTER, CLUSTER), (READ, GROUP))
        (topic,) = (await alice.ask(asks)).topics
        assert topic.topic_authorized_operations == bits(WRITE, DESCRIBE, ALTER_CONFIGS, DESCRIBE_CONFIGS)
        assert (await alice.ask(cluster)).cluster_authorized_operations == bits(ALTER, DESCRIBE)
        (topic,) = (await secured.root.ask(asks)).topics
        every = bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
        assert topic.topic_authorized_operations == every
        await secured.grant((READ, TOPIC))
        assert (await alice.ask(cluster)).cluster_authorized_operations == 0
        plain = describe_cluster.DescribeClusterRequest(endpoint_type=1)
        assert (await alice.ask(plain)).cluster_authorized_operations == -(2**31)
        assert (await alice.ask(groups)).groups[0].error_code == G

    with_secured(program)


def test_some_topics_of_a_request_are_forbidden_and_others_are_not() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        await secured.add(
            Acl(2, "mine-", PatternType.PREFIXED, "User:alice", "*", CREATE, Permission.ALLOW),
            Acl(2, "mine-", PatternType.PREFIXED, "User:alice", "*", ALTER, Permission.ALLOW),
            Acl(2, "mine-", PatternType.PREFIXED, "User:alice", "*", DELETE, Permission.ALLOW),
            Acl(2, "mine-not", PatternType.LITERAL, "User:*", "*", Operation.ALL, Permission.DENY),
        )
        names = ("mine-1", "mine-not", "yours")
        made = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        response = await alice.ask(create_topics.CreateTopicsRequest(topics=made))
        assert {each.name: each.error_code for each in response.topics} == {"mine-1": 0, "mine-not": T, "yours": T}
        (good,) = (each for each in response.topics if each.name == "mine-1")
        # Created, but its settings are not shown.
        assert (good.topic_config_error_code, good.num_partitions, good.configs) == (T, -1, [])
        for name in names[1:]:
            assert await secured.root.create_topic(name) is ErrorCode.NONE
        more = [create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
        results = (await alice.ask(create_partitions.CreatePartitionsRequest(topics=more))).results
        assert {each.name: each.error_code for each in results} == {"mine-1": 0, "mine-not": T, "yours": T}
        ids = await secured.root.topics()
        gone = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=ids[name]) for name in names]
        )
        responses = (await alice.ask(gone)).responses
        assert {each.topic_id: (each.name, each.error_code) for each in responses} == {
            ids["mine-1"]: ("mine-1", 0),
            ids["mine-not"]: (None, T),
            ids["yours"]: (None, T),
        }

    with_secured(program)


def test_an_expression_matches_only_topics_that_the_member_may_describe() -> None:
    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        for name in ("open-1", "open-2", "secret"):
            await secured.root.create_topic(name)
        await secured.add(
            Acl(2, "open-", PatternType.PREFIXED, "User:alice", "*", READ, Permission.ALLOW),
            Acl(3, "r", PatternType.LITERAL, "User:alice", "*", READ, Permission.ALLOW),
        )
        join = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="r",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[],
            subscribed_topic_regex=".*",
            topic_partitions=[],
        )
        answer = await alice.ask(join)
        assert answer.error_code == 0
        names = {topic_id: name for name, topic_id in (await secured.root.topics()).items()}
        assert {names[each.topic_id] for each in answer.assignment.topic_partitions} == {"open-1", "open-2"}

    with_secured(program)


def test_the_acls_of_a_connection_hold_from_the_next_request_on() -> None:
    """Plain produce requests keep the decision with the connection: it must not outlive its ACLs."""

    async def program(secured: Secured) -> None:
        alice = await secured.client(ALICE)
        for allowed in (True, False, True):
            await secured.grant(*([(WRITE, TOPIC)] if allowed else []))
            for _ in range(3):
                answer = await alice.produce("t", batch(b"v", timestamp=1))
                assert answer.error_code == (0 if allowed else T)
        await secured.add(Acl(2, "t", PatternType.LITERAL, "User:*", "*", WRITE, Permission.DENY))
        assert (await alice.produce("t", batch(b"v", timestamp=1))).error_code == T
        assert (await secured.root.produce("t", batch(b"v", timestamp=1))).error_code == 0

    with_secured(program)


def test_acls_survive_a_restart_and_a_snapshot() -> None:
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        secured = Secured(loop)
        await secured.start()
        await secured.grant((READ, TOPIC))
        assert secured.world.node is not None
        await secured.world.node.quorum.snapshot()
        await secured.add(Acl(2, "t", PatternType.LITERAL, "User:bob", "*", READ, Permission.ALLOW))
        await secured.world.stop()
        await secured.close()
        await secured.world.start()
        for who, error in ((ALICE, 0), (Principal("User", "bob"), 0), (Principal("User", "eve"), T)):
            client = await secured.client(who)
            assert (await client.fetch("t", 0)).error_code == error
        await secured.close()

    simulate(run, 1)


def test_without_an_authorizer_there_are_no_acls() -> None:
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, 1)
        await world.start()
        async with world.client() as client:
            for each in BROKER_ROWS:
                if isinstance(each.request, (describe_acls.DescribeAclsRequest, create_acls.CreateAclsRequest)):
                    assert codes(await client.ask(each.request)) == {ErrorCode.SECURITY_DISABLED}

    simulate(run, 1)


def test_unknown_types_close_the_connection() -> None:
    async def program(secured: Secured) -> None:
        for each in BROKER_ROWS:
            if isinstance(each.request, describe_acls.DescribeAclsRequest):
                bad = copy.copy(each.request)
                bad.operation = 0
        client = await secured.client(ROOT)
        with pytest.raises(Lost):
            await client.ask(bad)

    with_secured(program)


def test_refusals_and_changes_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    async def program(secured: Secured) -> None:
        caplog.set_level(logging.INFO, "penstock.audit")
        alice = await secured.client(ALICE)
        caplog.clear()
        await alice.ask(metadata.MetadataRequest(topics=None))
        assert not caplog.records  # nothing was asked for by name
        await alice.fetch("t", 0)
        await secured.root.create_topic("orders", {"retention.ms": "77777"})
        told = [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]
        host = "from host = "
        assert [line.partition(host)[0] for line in told] == [
            "Principal = User:alice is Denied operation = READ ",
            "Principal = User:root ",
        ]
        assert told[0].endswith("on resource = TOPIC:LITERAL:t for request = Fetch based on rule DefaultDeny")
        assert told[1].endswith("changed the cluster by request = CreateTopics of orders")

    with_secured(program)


def test_a_controller_waits_for_its_acls_and_superusers_do_not() -> None:
    """Nothing is known of denials before the metadata is loaded: clients have to come again."""
    quietly()

    async def run(loop: SimulatedLoop) -> None:
        # The other voter does not exist, so nobody is elected, and nothing is known to be committed.
        secured = Secured(
            loop,
            **{
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{HOST}:{CONTROLLER_PORT}",
                "controller.quorum.voters": f"1@{HOST}:{CONTROLLER_PORT},2@nowhere:1",
            },
        )
        await secured.world.start()
        asks = describe_quorum.DescribeQuorumRequest()
        root = await secured.client(ROOT, CONTROLLER_PORT)
        assert codes(await root.ask(asks)) == set()
        alice = await secured.client(ALICE, CONTROLLER_PORT)
        with pytest.raises(Lost):
            await alice.ask(asks)
        await secured.close()

    simulate(run, 1)
