"""Every API in every version it is advertised in: asked for something real, answered in that very version.

A response that holds a value its version cannot carry, or that a client of that version cannot read, shows here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.apis import BROKER_APIS
from penstock.broker.net.router import key_of
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    update_features,
)
from penstock.protocol.messages import (
    produce as produce_messages,
)
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest
from penstock.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.describe_acls import DescribeAclsRequest
from penstock.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from penstock.protocol.messages.unregister_controller import UnregisterControllerRequest
from penstock.testing.nodes import RunningNode
from scenarios import coordinator_requests
from waiting import wait_until
from wire import BROKER_RESOURCE, TOPIC_RESOURCE, Wire, batch, create_topic, produce, producer_id

# Version 6 of InitProducerId is for those who have enabled two-phase commit.
SERVED = {key_of(module): module.VERSIONS for module in BROKER_APIS} | {ApiKey.INIT_PRODUCER_ID: (0, 5)}
LOWEST_PRODUCE_ADVERTISED = 0  # librdkafka takes the feature from there; below 3 nothing is served

NOT_THERE = "not-there"
GROUP_KIND, TRANSACTION_KIND = 0, 1
UNKNOWN_ID = b"\x77" * 16


class RequestTarget:
    """Topics to ask about: one with records, and names for new ones."""

    def __init__(
        self, topic: str, topic_id: bytes, node_id: int, new_name: Callable[[str], str], directory: str = ""
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.node_id = node_id
        self.new_name = new_name
        self.directory = directory


def produce_request(target: RequestTarget, version: int) -> Message:
    def topic(name: str, topic_id: bytes, *partitions: int) -> produce_messages.TopicProduceData:
        return produce_messages.TopicProduceData(
            name=name,
            topic_id=topic_id,
            partition_data=[
                produce_messages.PartitionProduceData(index=index, records=data)
                for index in partitions
                for data in (batch("again"),)
            ],
        )

    return produce_messages.ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[topic(target.topic, target.topic_id, 0, 99), topic(NOT_THERE, UNKNOWN_ID, 0)],
    )


def fetch_request(target: RequestTarget, version: int) -> Message:
    def topic(name: str, topic_id: bytes, *partitions: int) -> fetch.FetchTopic:
        return fetch.FetchTopic(
            topic=name,
            topic_id=topic_id,
            partitions=[fetch.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in partitions],
        )

    return fetch.FetchRequest(
        max_bytes=1 << 20,
        isolation_level=1,
        session_epoch=0,
        topics=[topic(target.topic, target.topic_id, 0, 99), topic(NOT_THERE, UNKNOWN_ID, 0)],
    )


def list_offsets_request(target: RequestTarget, version: int) -> Message:
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetsTopic(
                name=name, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            )
            for name, timestamp in ((target.topic, -1), (NOT_THERE, -2))
        ],
    )


def metadata_request(target: RequestTarget, version: int) -> Message:
    topics = [metadata.MetadataRequestTopic(name=name) for name in (target.topic, NOT_THERE, "in valid")]
    if version >= 12:
        topics += [metadata.MetadataRequestTopic(name=None, topic_id=each) for each in (target.topic_id, UNKNOWN_ID)]
    return metadata.MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=version < 4,
        include_topic_authorized_operations=version >= 8,
        include_cluster_authorized_operations=8 <= version <= 10,
    )


def api_versions_request(target: RequestTarget, version: int) -> Message:
    if version >= 3:
        return ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
    return ApiVersionsRequest()


def create_topics_request(target: RequestTarget, version: int) -> Message:
    return create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=target.new_name("created"),
                num_partitions=2,
                replication_factor=1,
                configs=[create_topics.CreatableTopicConfig(name="retention.ms", value="100000")],
            ),
            create_topics.CreatableTopic(name=target.topic, num_partitions=1, replication_factor=1),
        ]
    )


def delete_topics_request(target: RequestTarget, version: int) -> Message:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=[NOT_THERE, "in valid"])
    return delete_topics.DeleteTopicsRequest(
        topics=[
            delete_topics.DeleteTopicState(name=NOT_THERE),
            delete_topics.DeleteTopicState(name=None, topic_id=UNKNOWN_ID),
        ]
    )


def delete_records_request(target: RequestTarget, version: int) -> Message:
    return delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.DeleteRecordsTopic(
                name=name, partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
            )
            for name in (target.topic, NOT_THERE)
        ]
    )


def offset_for_leader_epoch_request(target: RequestTarget, version: int) -> Message:
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(
                topic=name, partitions=[offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            )
            for name in (target.topic, NOT_THERE)
        ],
    )


def describe_configs_request(target: RequestTarget, version: int) -> Message:
    return describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in (
                (TOPIC_RESOURCE, target.topic),
                (TOPIC_RESOURCE, NOT_THERE),
                (BROKER_RESOURCE, str(target.node_id)),
                (BROKER_RESOURCE, ""),
                (77, "what"),
            )
        ],
        include_synonyms=True,
        include_documentation=version >= 3,
    )


def alter_configs_request(target: RequestTarget, version: int) -> Message:
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name="retention.ms", value="100000")],
            )
            for name in (target.topic, NOT_THERE)
        ]
    )


def incremental_alter_configs_request(target: RequestTarget, version: int) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=target.topic,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name="retention.ms", value=value, config_operation=operation
                    )
                ],
            )
            for operation, value in ((0, "200000"),)
        ]
        + [
            incremental_alter_configs.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=NOT_THERE,
                configs=[incremental_alter_configs.AlterableConfig(name="no.such.setting", value="1")],
            )
        ]
    )


def create_partitions_request(target: RequestTarget, version: int) -> Message:
    return create_partitions.CreatePartitionsRequest(
        topics=[
            create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in ((target.topic, 1), (NOT_THERE, 2))
        ]
    )


def alter_replica_log_dirs_request(target: RequestTarget, version: int) -> Message:
    topics = [
        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in (target.topic, NOT_THERE)
    ]
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=[alter_replica_log_dirs.AlterReplicaLogDir(path=target.directory, topics=topics)]
    )


def describe_log_dirs_request(target: RequestTarget, version: int) -> Message:
    return describe_log_dirs.DescribeLogDirsRequest(topics=None)


def describe_topic_partitions_request(target: RequestTarget, version: int) -> Message:
    return describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in (target.topic, NOT_THERE)]
    )


def describe_producers_request(target: RequestTarget, version: int) -> Message:
    return describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in (target.topic, NOT_THERE)]
    )


def describe_quorum_request(target: RequestTarget, version: int) -> Message:
    return describe_quorum.DescribeQuorumRequest(
        topics=[
            describe_quorum.DescribeQuorumRequestTopicData(
                topic_name=name,
                partitions=[describe_quorum.DescribeQuorumRequestPartitionData(partition_index=0)],
            )
            for name in (METADATA_TOPIC, NOT_THERE)
        ]
    )


def update_features_request(target: RequestTarget, version: int) -> Message:
    return update_features.UpdateFeaturesRequest(
        feature_updates=[update_features.FeatureUpdateKey(feature="no.such.feature", max_version_level=1)]
    )


REQUESTS: dict[ApiKey, Callable[[RequestTarget, int], Message]] = {
    ApiKey.PRODUCE: produce_request,
    ApiKey.FETCH: fetch_request,
    ApiKey.LIST_OFFSETS: list_offsets_request,
    ApiKey.METADATA: metadata_request,
    ApiKey.API_VERSIONS: api_versions_request,
    ApiKey.CREATE_TOPICS: create_topics_request,
    ApiKey.DELETE_TOPICS: delete_topics_request,
    ApiKey.DELETE_RECORDS: delete_records_request,
    ApiKey.INIT_PRODUCER_ID: lambda target, version: InitProducerIdRequest(transactional_id=None),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch_request,
    ApiKey.DESCRIBE_CONFIGS: describe_configs_request,
    ApiKey.ALTER_CONFIGS: alter_configs_request,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs_request,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs_request,
    ApiKey.CREATE_PARTITIONS: create_partitions_request,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs_request,
    ApiKey.DESCRIBE_QUORUM: describe_quorum_request,
    ApiKey.UPDATE_FEATURES: update_features_request,
    ApiKey.DESCRIBE_CLUSTER: lambda target, version: DescribeClusterRequest(include_cluster_authorized_operations=True),
    ApiKey.DESCRIBE_PRODUCERS: describe_producers_request,
    ApiKey.FIND_COORDINATOR: lambda target, version: (
        FindCoordinatorRequest(key="group") if version < 4 else FindCoordinatorRequest(coordinator_keys=["group"])
    ),
    ApiKey.LIST_CONFIG_RESOURCES: lambda target, version: ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions_request,
    ApiKey.ELECT_LEADERS: lambda target, version: ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=target.topic, partitions=[0])], timeout_ms=1000
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda target, version: AlterPartitionReassignmentsRequest(
        timeout_ms=1000,
        topics=[
            ReassignableTopic(
                name=target.topic, partitions=[ReassignablePartition(partition_index=0, replicas=[target.node_id])]
            )
        ],
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda target, version: ListPartitionReassignmentsRequest(topics=None),
    ApiKey.UNREGISTER_BROKER: lambda target, version: UnregisterBrokerRequest(broker_id=999),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: lambda target, version: GetTelemetrySubscriptionsRequest(),
    ApiKey.PUSH_TELEMETRY: lambda target, version: PushTelemetryRequest(client_instance_id=UNKNOWN_ID, metrics=b"x"),
    ApiKey.UNREGISTER_CONTROLLER: lambda target, version: UnregisterControllerRequest(controller_id=999),
    ApiKey.ADD_RAFT_VOTER: lambda target, version: AddRaftVoterRequest(voter_id=999, timeout_ms=1000),
    ApiKey.REMOVE_RAFT_VOTER: lambda target, version: RemoveRaftVoterRequest(voter_id=999),
    ApiKey.DESCRIBE_ACLS: lambda target, version: DescribeAclsRequest(
        resource_type_filter=1, operation=1, permission_type=1
    ),
    ApiKey.CREATE_ACLS: lambda target, version: CreateAclsRequest(
        creations=[AclCreation(resource_type=2, resource_name=target.topic, operation=3, permission_type=3)]
    ),
    ApiKey.DELETE_ACLS: lambda target, version: DeleteAclsRequest(
        filters=[DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)]
    ),
    ApiKey.SASL_HANDSHAKE: lambda target, version: SaslHandshakeRequest(mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: lambda target, version: SaslAuthenticateRequest(auth_bytes=b"x"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda target, version: DescribeUserScramCredentialsRequest(users=None),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda target, version: AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(name="alice", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32)
        ]
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: lambda target, version: CreateDelegationTokenRequest(max_lifetime_ms=-1),
    ApiKey.RENEW_DELEGATION_TOKEN: lambda target, version: RenewDelegationTokenRequest(hmac=b"x"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda target, version: ExpireDelegationTokenRequest(hmac=b"x"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: lambda target, version: DescribeDelegationTokenRequest(owners=None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda target, version: DescribeClientQuotasRequest(),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda target, version: AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.AlterClientQuotasRequestEntryData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name=target.topic)],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e9)],
            )
        ],
        validate_only=True,
    ),
    **coordinator_requests.REQUESTS,
}

# What is asked of these is refused, for reasons of its own.
REFUSED = {
    ApiKey.DELETE_TOPICS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.UNREGISTER_CONTROLLER,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    *coordinator_requests.REFUSED,
}


def await_coordinators(wire: Wire, kind: int) -> None:
    """The topic they write to is made when they are first looked for, and then has to be loaded."""
    find = FindCoordinatorRequest(key_type=kind, coordinator_keys=["group"])
    wait_until(lambda: not wire.ask(find).coordinators[0].error_code, "a coordinator is found")
    request = ListGroupsRequest() if kind == GROUP_KIND else ListTransactionsRequest()
    wait_until(lambda: wire.ask(request).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.fixture(scope="module")
def target(broker: RunningNode, unique_topic: Callable[[str], str]) -> RequestTarget:
    with Wire(broker) as wire:
        topic = unique_topic("every-version")
        topic_id = create_topic(wire, topic)
        data = batch("a", "b", producer_id=producer_id(wire), producer_epoch=0, base_sequence=0)
        assert produce(wire, topic, data).error_code == ErrorCode.NONE
        for kind in (GROUP_KIND, TRANSACTION_KIND):
            await_coordinators(wire, kind)
        target = RequestTarget(topic, topic_id, broker.node_id, unique_topic, broker.data_directory)
        wire.ask(coordinator_requests.offset_commit_request(target, 10), 10)
    return target


def test_what_is_advertised_is_what_is_served(wire: Wire) -> None:
    answer = wire.ask(ApiVersionsRequest(client_software_name="tests", client_software_version="1"))
    advertised = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    expected = SERVED | {ApiKey.PRODUCE: (LOWEST_PRODUCE_ADVERTISED, SERVED[ApiKey.PRODUCE][1])}
    for key in (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY):  # only while metrics are asked for
        del expected[key]
    assert advertised == expected
    for key, versions in SERVED.items():
        assert versions == (API[key].min_version, API[key].max_version), API[key].name


def test_every_served_api_is_asked_here() -> None:
    assert set(REQUESTS) == set(SERVED)


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key, (low, high) in SERVED.items() for version in range(low, high + 1)],
    ids=lambda value: value.name if isinstance(value, ApiKey) else f"v{value}",
)
def test_a_real_request_is_answered(
    wire: Wire, complaints: Callable[[], str], target: RequestTarget, key: ApiKey, version: int
) -> None:
    answer = wire.ask(REQUESTS[key](target, version), version)
    assert getattr(answer, "error_code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR
    errors = list(error_codes(answer))
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in errors
    if key not in REFUSED:
        assert ErrorCode.NONE in errors or not errors
    assert "Traceback" not in complaints()


@pytest.mark.parametrize("key", list(SERVED), ids=lambda key: key.name)
def test_an_empty_request_is_answered_in_every_version(wire: Wire, complaints: Callable[[], str], key: ApiKey) -> None:
    low, high = SERVED[key]
    for version in range(low, high + 1):
        request = API[key].request()
        if isinstance(request, produce_messages.ProduceRequest):
            request.acks = 1
        if isinstance(request, DescribeAclsRequest):  # types that are UNKNOWN close the connection, as in Kafka
            request.resource_type_filter = request.operation = request.permission_type = 1
        wire.ask(request, version)
    assert "Traceback" not in complaints()


@pytest.mark.parametrize("key", [key for key in SERVED if key is not ApiKey.API_VERSIONS], ids=lambda key: key.name)
def test_a_version_beside_those_served_closes_the_connection(broker: RunningNode, key: ApiKey) -> None:
    low, high = SERVED[key]
    for version in (low - 1, high + 1):
        with Wire(broker) as wire:
            frame = bytearray(wire.encode(API[key].request(), high))
            frame[6:8] = version.to_bytes(2, "big", signed=True)
            wire.socket.sendall(frame)
            assert wire.is_closed()


def error_codes(message: Any) -> Any:
    """Every error code in a response, at any depth."""
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_code":
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from error_codes(each)


def test_metadata_by_id_needs_version_12(wire: Wire, target: RequestTarget) -> None:
    for version in (10, 11):
        by_id = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=None, topic_id=target.topic_id)], allow_auto_topic_creation=False
        )
        (topic,) = wire.ask(by_id, version).topics
        assert topic.error_code == ErrorCode.INVALID_REQUEST
    both = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=None, topic_id=each) for each in (target.topic_id, UNKNOWN_ID)]
    )
    known, unknown = wire.ask(both, 12).topics
    assert (known.name, known.error_code) == (target.topic, ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_topic_ids_are_told_from_the_version_that_has_them(wire: Wire, target: RequestTarget) -> None:
    for version in range(14):
        request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=target.topic)])
        (topic,) = wire.ask(request, version).topics
        assert topic.topic_id == (target.topic_id if version >= 10 else ZERO_UUID)
