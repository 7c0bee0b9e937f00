"""Topics and settings, made, changed and deleted over the wire; and what takes effect at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until
from wire import (
    APPEND,
    BROKER_RESOURCE,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
    Wire,
    alter_configs,
    batch,
    broker_config,
    create_topic,
    end_offset,
    fetch,
    fetch_request,
    metadata_of,
    now_ms,
    produce,
    produce_request,
    read_all,
    values,
)

Names = Callable[[str], str]
DAY_MS = 86_400_000


def create(wire: Wire, topic: CreatableTopic, **options: bool) -> ErrorCode:
    (result,) = wire.ask(CreateTopicsRequest(topics=[topic], **options)).topics
    return ErrorCode(result.error_code)


def delete(wire: Wire, name: str) -> ErrorCode:
    (result,) = wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])).responses
    return ErrorCode(result.error_code)


def add_partitions(wire: Wire, name: str, count: int, *assigned: list[int], **options: bool) -> ErrorCode:
    assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned] or None
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=assignments)], **options
    )
    (result,) = wire.ask(request).results
    return ErrorCode(result.error_code)


def setting(wire: Wire, topic: str, name: str) -> str | None:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name])
        ]
    )
    ((entry,),) = (result.configs for result in wire.ask(request).results)
    value: str | None = entry.value
    return value


# -- making


def test_a_topic_can_be_used_as_soon_as_it_is_answered_for(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("new")
    topic_id = create_topic(wire, name, partitions=3)
    described = metadata_of(wire, name)
    assert described.topic_id == topic_id
    assert [partition.partition_index for partition in described.partitions] == [0, 1, 2]
    assert {partition.leader_id for partition in described.partitions} == {1}
    assert produce(wire, name, batch("a"), partition=2).base_offset == 0


def test_what_is_refused(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("refused")
    create_topic(wire, name)

    def topic(
        name: str | None = None,
        num_partitions: int = 1,
        replication_factor: int = 1,
        assignments: Sequence[CreatableReplicaAssignment] = (),
        configs: Sequence[CreatableTopicConfig] = (),
    ) -> CreatableTopic:
        return CreatableTopic(
            name=unique_topic("never") if name is None else name,
            num_partitions=num_partitions,
            replication_factor=replication_factor,
            assignments=list(assignments),
            configs=list(configs),
        )

    def config(key: str, value: str | None) -> list[CreatableTopicConfig]:
        return [CreatableTopicConfig(name=key, value=value)]

    cases = [
        (topic(name=name), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(name=name.replace("-", ".")), ErrorCode.NONE),
        (topic(name=name.replace("-", "_")), ErrorCode.INVALID_TOPIC_EXCEPTION),  # collides in metrics' names
        (topic(num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(num_partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(configs=config("no.such.setting", "1")), ErrorCode.INVALID_CONFIG),
        (topic(configs=config("retention.ms", "soon")), ErrorCode.INVALID_CONFIG),
        (topic(configs=config("retention.ms", None)), ErrorCode.INVALID_CONFIG),
        (topic(configs=config("cleanup.policy", "burn")), ErrorCode.INVALID_CONFIG),
        (
            topic(assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            topic(
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[77])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic(
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (topic(num_partitions=10_001), ErrorCode.POLICY_VIOLATION),
    ]
    for request, expected in cases:
        assert create(wire, request) is expected, request
        if expected is not ErrorCode.NONE and request.name != name:
            assert metadata_of(wire, request.name).error_code != ErrorCode.NONE


def test_each_topic_of_a_request_stands_alone(wire: Wire, unique_topic: Names) -> None:
    good, twice = unique_topic("good"), unique_topic("twice")
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (good, twice, "b/d", twice)
        ]
    )
    results = {result.name: ErrorCode(result.error_code) for result in wire.ask(request).topics}
    assert results == {
        good: ErrorCode.NONE,
        twice: ErrorCode.INVALID_REQUEST,
        "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_the_answer_tells_the_settings(wire: Wire, unique_topic: Names) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=unique_topic("told"),
                num_partitions=-1,
                replication_factor=-1,
                configs=[CreatableTopicConfig(name="retention.ms", value="12345")],
            )
        ]
    )
    (result,) = wire.ask(request).topics
    assert (result.num_partitions, result.replication_factor) == (1, 1)
    assert {entry.name: entry.value for entry in result.configs}["retention.ms"] == "12345"


def test_validation_alone_changes_nothing(wire: Wire, unique_topic: Names) -> None:
    name, existing = unique_topic("dry"), unique_topic("wet")
    create_topic(wire, existing)
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert create(wire, topic, validate_only=True) is ErrorCode.NONE
    assert metadata_of(wire, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert add_partitions(wire, existing, 3, validate_only=True) is ErrorCode.NONE
    assert len(metadata_of(wire, existing).partitions) == 1
    before = setting(wire, existing, "retention.ms")
    changes = {"retention.ms": "777"}
    assert alter_configs(wire, TOPIC_RESOURCE, existing, changes, validate_only=True) is ErrorCode.NONE
    assert setting(wire, existing, "retention.ms") == before


def test_partitions_are_added(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("growing")
    create_topic(wire, name)
    produce(wire, name, batch("a"))
    assert add_partitions(wire, name, 3) is ErrorCode.NONE
    assert produce(wire, name, batch("b"), partition=2).base_offset == 0
    assert produce(wire, name, batch("c"), partition=0).base_offset == 1
    assert add_partitions(wire, name, 4, [1]) is ErrorCode.NONE
    assert add_partitions(wire, name, 4) is ErrorCode.INVALID_PARTITIONS
    assert add_partitions(wire, name, 2) is ErrorCode.INVALID_PARTITIONS
    assert add_partitions(wire, name, 5, [77]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(wire, name, 6, [1]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(wire, "absent", 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- deleting


def test_a_deleted_topic_is_gone_and_its_name_is_free(broker: RunningNode, wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("brief")
    ids = set()
    for generation in range(3):
        ids.add(create_topic(wire, name, partitions=2))
        assert produce(wire, name, batch(f"{generation}")).base_offset == 0
        assert [record.value for record in read_all(wire, name)] == [f"{generation}".encode()]
        assert delete(wire, name) is ErrorCode.NONE
        assert metadata_of(wire, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = produce(wire, name, batch("late"))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not os.path.exists(broker.partition_directory(name))
    assert len(ids) == 3
    assert delete(wire, name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_by_id_and_in_old_versions(wire: Wire, unique_topic: Names) -> None:
    first, second = unique_topic("first"), unique_topic("second")
    first_id = create_topic(wire, first)
    create_topic(wire, second)
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=first_id)])
    (result,) = wire.ask(by_id).responses
    assert (result.name, result.error_code) == (first, ErrorCode.NONE)
    (result,) = wire.ask(by_id).responses
    assert (result.name, result.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    (result,) = wire.ask(DeleteTopicsRequest(topic_names=[second]), 3).responses
    assert (result.name, result.error_code) == (second, ErrorCode.NONE)
    both = DeleteTopicsRequest(topics=[DeleteTopicState(name=first, topic_id=first_id)])
    (result,) = wire.ask(both).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_producers_that_wait_are_told_when_their_topic_goes(
    broker: RunningNode, wire: Wire, unique_topic: Names
) -> None:
    """Whatever the race between flush and deletion: everybody is answered, and in order."""
    name = unique_topic("going")
    create_topic(wire, name, configs={"flush.messages": "1"})
    with Wire(broker) as producer:
        for number in range(50):
            producer.send(produce_request(name, batch(str(number)), acks=-1), 12)
        assert delete(wire, name) is ErrorCode.NONE
        codes = {producer.receive().responses[0].partition_responses[0].error_code for _ in range(50)}
    assert codes <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# -- settings


def test_incremental_changes(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("altered")
    create_topic(wire, name, configs={"cleanup.policy": "delete"})
    policy = "cleanup.policy"
    assert alter_configs(wire, TOPIC_RESOURCE, name, {policy: "compact"}, operation=APPEND) is ErrorCode.NONE
    assert setting(wire, name, policy) == "delete,compact"
    assert alter_configs(wire, TOPIC_RESOURCE, name, {policy: "delete"}, operation=SUBTRACT) is ErrorCode.NONE
    assert setting(wire, name, policy) == "compact"
    assert alter_configs(wire, TOPIC_RESOURCE, name, {policy: None}, operation=DELETE) is ErrorCode.NONE
    assert setting(wire, name, policy) == "delete"
    assert alter_configs(wire, TOPIC_RESOURCE, name, {"retention.ms": "1"}, operation=APPEND) is (
        ErrorCode.INVALID_CONFIG
    )
    assert alter_configs(wire, TOPIC_RESOURCE, name, {"retention.ms": "x"}, operation=SET) is ErrorCode.INVALID_CONFIG
    assert alter_configs(wire, TOPIC_RESOURCE, name, {"no.such": "x"}) is ErrorCode.INVALID_CONFIG
    assert alter_configs(wire, TOPIC_RESOURCE, "absent", {"retention.ms": "1"}) is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_the_older_request_replaces_all(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("replaced")
    create_topic(wire, name, configs={"retention.ms": "5000", "segment.bytes": "2000000"})
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configs=[AlterableConfig(name="segment.bytes", value="3000000")],
            )
        ]
    )
    (result,) = wire.ask(request).responses
    assert result.error_code == ErrorCode.NONE
    assert setting(wire, name, "segment.bytes") == "3000000"
    assert setting(wire, name, "retention.ms") == "604800000"


def test_a_broker_setting_is_the_default_of_its_topics(broker: RunningNode, wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("default")
    create_topic(wire, name)
    with broker_config(wire, broker.node_id, "message.max.bytes", "500"):
        assert setting(wire, name, "max.message.bytes") == "500"
        assert produce(wire, name, batch("x" * 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert alter_configs(wire, TOPIC_RESOURCE, name, {"max.message.bytes": "5000"}) is ErrorCode.NONE
        assert produce(wire, name, batch("x" * 1000)).base_offset == 0
    assert alter_configs(wire, TOPIC_RESOURCE, name, {"max.message.bytes": None}) is ErrorCode.NONE
    assert produce(wire, name, batch("x" * 1000)).base_offset == 1


@pytest.mark.parametrize("name", ["node.id", "log.dirs", "listeners", "process.roles"])
def test_what_only_a_restart_can_change_is_refused(broker: RunningNode, wire: Wire, name: str) -> None:
    changes: dict[str, str | None] = {name: "7"}
    assert alter_configs(wire, BROKER_RESOURCE, str(broker.node_id), changes) in (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
    )


def test_the_limit_of_connections_changes_at_once(broker: RunningNode, wire: Wire) -> None:
    with Wire(broker) as spare, broker_config(wire, broker.node_id, "max.connections", "1"):
        with Wire(broker) as refused:
            assert refused.is_closed()
        metadata_of(spare, "whatever")  # those that are open stay open
    with Wire(broker) as accepted:
        metadata_of(accepted, "whatever")


def test_retention_follows_its_setting(tmp_path: Path) -> None:
    with (
        start_node(tmp_path, properties={"log.retention.check.interval.ms": "50"}) as node,
        Wire(node) as wire,
        Wire(node) as waiting,
    ):
        create_topic(wire, "t", configs={"file.delete.delay.ms": "0"})
        produce(wire, "t", batch("old", timestamp=now_ms() - 6 * DAY_MS))
        assert end_offset(wire, "t") == 1
        waiting.send(fetch_request("t", 1, max_wait_ms=60_000, min_bytes=1), 12)
        assert alter_configs(wire, TOPIC_RESOURCE, "t", {"retention.ms": str(DAY_MS)}) is ErrorCode.NONE
        wait_until(lambda: fetch(wire, "t", 1).log_start_offset == 1, "the segment is deleted")
        assert fetch(wire, "t", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert produce(wire, "t", batch("new")).base_offset == 1
        assert values(fetch(wire, "t", 1).records) == [b"new"]
        assert values(waiting.receive().responses[0].partitions[0].records) == [b"new"]


# -- made by asking


def test_a_topic_is_made_when_a_client_asks_for_it(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("asked")
    assert metadata_of(wire, name, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata_of(wire, name, create=False).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata_of(wire, name, create=True).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: metadata_of(wire, name).error_code == ErrorCode.NONE, "the topic is created")
    assert produce(wire, name, batch("a")).base_offset == 0


def test_a_bad_name_is_not_made(wire: Wire) -> None:
    assert metadata_of(wire, "bad name", create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
