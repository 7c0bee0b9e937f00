"""The table of all APIs: keys, messages, versions, and the listeners that serve them.

Versions come from the messages. The table states two exceptions: `stable` is the newest version to serve if the message
already declares a draft of the next; `advertised_min` is the lowest version to report in ApiVersions if that is not the
lowest one served.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from penstock.protocol.declaration import Message
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from penstock.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from penstock.protocol.messages.produce import ProduceRequest, ProduceResponse
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from penstock.protocol.messages.vote import VoteRequest, VoteResponse
from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82


class ApiSpec(NamedTuple):
    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    # The newest version to serve and to request.
    max_version: int
    # The newest version declared: above max_version only while Kafka calls it unstable.
    latest_version: int
    # The first version with compact lengths and tags; above latest_version if there is none.
    flexible_from: int
    # "broker", "controller", or both.
    listeners: frozenset[str]
    # The minimum version that ApiVersions reports instead of min_version.
    advertised_min_version: int


_BROKER = frozenset({"broker"})
_CONTROLLER = frozenset({"controller"})
_BOTH = _BROKER | _CONTROLLER

# The first flexible version of an API that has none.
NEVER = 32767


def _spec(
    request: type[Message],
    response: type[Message],
    listeners: frozenset[str],
    *,
    stable: int | None = None,
    advertised_min: int | None = None,
) -> ApiSpec:
    schema = request.__schema__
    if schema.key is None or schema.versions is None:
        raise TypeError(f"{request.__name__} declares no API key or no versions")
    first, latest = schema.versions
    return ApiSpec(
        key=ApiKey(schema.key),
        name=request.__name__.removesuffix("Request"),
        request=request,
        response=response,
        min_version=first,
        max_version=latest if stable is None else stable,
        latest_version=latest,
        flexible_from=schema.flexible.first if schema.flexible.first <= schema.flexible.last else NEVER,
        listeners=listeners,
        advertised_min_version=first if advertised_min is None else advertised_min,
    )


_SPECS = (
    # librdkafka fails to compress for a broker that does not offer Produce 0 (KAFKA-18659), though it never sends it.
    _spec(ProduceRequest, ProduceResponse, _BROKER, advertised_min=0),
    _spec(FetchRequest, FetchResponse, _BOTH),
    _spec(ListOffsetsRequest, ListOffsetsResponse, _BROKER),
    _spec(MetadataRequest, MetadataResponse, _BROKER),
    _spec(OffsetCommitRequest, OffsetCommitResponse, _BROKER),
    _spec(OffsetFetchRequest, OffsetFetchResponse, _BROKER),
    _spec(FindCoordinatorRequest, FindCoordinatorResponse, _BROKER),
    _spec(JoinGroupRequest, JoinGroupResponse, _BROKER),
    _spec(HeartbeatRequest, HeartbeatResponse, _BROKER),
    _spec(LeaveGroupRequest, LeaveGroupResponse, _BROKER),
    _spec(SyncGroupRequest, SyncGroupResponse, _BROKER),
    _spec(DescribeGroupsRequest, DescribeGroupsResponse, _BROKER),
    _spec(ListGroupsRequest, ListGroupsResponse, _BROKER),
    _spec(SaslHandshakeRequest, SaslHandshakeResponse, _BOTH),
    _spec(ApiVersionsRequest, ApiVersionsResponse, _BOTH, stable=4),
    _spec(CreateTopicsRequest, CreateTopicsResponse, _BOTH),
    _spec(DeleteTopicsRequest, DeleteTopicsResponse, _BOTH),
    _spec(DeleteRecordsRequest, DeleteRecordsResponse, _BROKER),
    _spec(InitProducerIdRequest, InitProducerIdResponse, _BROKER, stable=5),
    _spec(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, _BROKER),
    _spec(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, _BROKER),
    _spec(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, _BROKER),
    _spec(EndTxnRequest, EndTxnResponse, _BROKER),
    _spec(WriteTxnMarkersRequest, WriteTxnMarkersResponse, _BROKER),
    _spec(TxnOffsetCommitRequest, TxnOffsetCommitResponse, _BROKER, stable=5),
    _spec(DescribeAclsRequest, DescribeAclsResponse, _BOTH),
    _spec(CreateAclsRequest, CreateAclsResponse, _BOTH),
    _spec(DeleteAclsRequest, DeleteAclsResponse, _BOTH),
    _spec(DescribeConfigsRequest, DescribeConfigsResponse, _BOTH),
    _spec(AlterConfigsRequest, AlterConfigsResponse, _BOTH),
    _spec(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, _BROKER),
    _spec(DescribeLogDirsRequest, DescribeLogDirsResponse, _BROKER),
    _spec(SaslAuthenticateRequest, SaslAuthenticateResponse, _BOTH),
    _spec(CreatePartitionsRequest, CreatePartitionsResponse, _BOTH),
    _spec(CreateDelegationTokenRequest, CreateDelegationTokenResponse, _BOTH),
    _spec(RenewDelegationTokenRequest, RenewDelegationTokenResponse, _BOTH),
    _spec(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, _BOTH),
    _spec(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse, _BOTH),
    _spec(DeleteGroupsRequest, DeleteGroupsResponse, _BROKER, stable=2),
    _spec(ElectLeadersRequest, ElectLeadersResponse, _BOTH),
    _spec(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, _BOTH),
    _spec(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, _BOTH),
    _spec(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, _BOTH),
    _spec(OffsetDeleteRequest, OffsetDeleteResponse, _BROKER),
    _spec(DescribeClientQuotasRequest, DescribeClientQuotasResponse, _BROKER),
    _spec(AlterClientQuotasRequest, AlterClientQuotasResponse, _BOTH),
    _spec(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, _BOTH),
    _spec(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, _BOTH),
    _spec(VoteRequest, VoteResponse, _CONTROLLER),
    _spec(BeginQuorumEpochRequest, BeginQuorumEpochResponse, _CONTROLLER),
    _spec(EndQuorumEpochRequest, EndQuorumEpochResponse, _CONTROLLER),
    _spec(DescribeQuorumRequest, DescribeQuorumResponse, _BOTH),
    _spec(AlterPartitionRequest, AlterPartitionResponse, _CONTROLLER),
    _spec(UpdateFeaturesRequest, UpdateFeaturesResponse, _BOTH),
    _spec(EnvelopeRequest, EnvelopeResponse, _CONTROLLER),
    _spec(FetchSnapshotRequest, FetchSnapshotResponse, _CONTROLLER),
    _spec(DescribeClusterRequest, DescribeClusterResponse, _BOTH),
    _spec(DescribeProducersRequest, DescribeProducersResponse, _BROKER),
    _spec(BrokerRegistrationRequest, BrokerRegistrationResponse, _CONTROLLER),
    _spec(BrokerHeartbeatRequest, BrokerHeartbeatResponse, _CONTROLLER),
    _spec(UnregisterBrokerRequest, UnregisterBrokerResponse, _BOTH),
    _spec(DescribeTransactionsRequest, DescribeTransactionsResponse, _BROKER),
    _spec(ListTransactionsRequest, ListTransactionsResponse, _BROKER),
    _spec(AllocateProducerIdsRequest, AllocateProducerIdsResponse, _CONTROLLER),
    _spec(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, _BROKER),
    _spec(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, _BROKER),
    _spec(ControllerRegistrationRequest, ControllerRegistrationResponse, _CONTROLLER),
    _spec(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, _BROKER),
    _spec(PushTelemetryRequest, PushTelemetryResponse, _BROKER),
    _spec(AssignReplicasToDirsRequest, AssignReplicasToDirsResponse, _CONTROLLER),
    _spec(ListConfigResourcesRequest, ListConfigResourcesResponse, _BROKER),
    _spec(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, _BROKER),
    _spec(AddRaftVoterRequest, AddRaftVoterResponse, _BOTH),
    _spec(RemoveRaftVoterRequest, RemoveRaftVoterResponse, _BOTH),
    _spec(UpdateRaftVoterRequest, UpdateRaftVoterResponse, _CONTROLLER),
)

API: dict[int, ApiSpec] = {spec.key: spec for spec in _SPECS}
