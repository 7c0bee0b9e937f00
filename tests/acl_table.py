"""What each API needs, row by row: requests, the grants that are enough for each, and the error without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    list_offsets,
    list_partition_reassignments,
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
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    streams_structs,
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
from penstock.security.authorizer import (
    CLUSTER,
    Operation,
    Resource,
    ResourceKind,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from penstock.simulator import requests
from penstock.simulator.requests import batch

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

# A batch of a producer that the coordinator does not know.
TRANSACTIONAL: dict[str, Any] = {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0, "transactional": True}

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


def produce(transactional_id: str | None = None, **options: Any) -> Message:
    """`options`: of the batch."""
    request: Any = requests.produce_request("t", batch(b"v", timestamp=1, **options), acks=-1, timeout_ms=1000)
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
    row(produce("x", **TRANSACTIONAL), (WRITE, ID, X), (WRITE, TOPIC, T), version=12),
    row(produce("x"), (WRITE, TOPIC, T), version=12),
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
    row(
        streams_group_heartbeat.StreamsGroupHeartbeatRequest(
            group_id="application",
            member_id="m",
            rebalance_timeout_ms=1000,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            topology=streams_group_heartbeat.Topology(
                subtopologies=[streams_structs.Subtopology(subtopology_id="0", source_topics=["t"])]
            ),
        ),
        (READ, group_resource("application"), G),
        (DESCRIBE, TOPIC, T),
    ),
    row(
        streams_group_topology_description_update.StreamsGroupTopologyDescriptionUpdateRequest(
            group_id="application", member_id="m"
        ),
        (READ, group_resource("application"), G),
    ),
    row(
        streams_group_describe.StreamsGroupDescribeRequest(group_ids=["application"]),
        (DESCRIBE, group_resource("application"), G),
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
        delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="nowhere")], timeout_ms=30_000),
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
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=9, assignments=None)],
            timeout_ms=30_000,
            validate_only=True,
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
