from __future__ import annotations

import pytest

from narrowing import present
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.broker_registration import Listener
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
from penstock.protocol.messages.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from penstock.simulator.stories.controller_world import World, registration


def create_topics(world: World, *topics: CreatableTopic, validate_only: bool = False) -> list[tuple[int, str | None]]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    response = world.do(world.controller.create_topics(request))
    return [(result.error_code, result.error_message) for result in response.topics]


def automatic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1)


def manual(name: str, assignments: dict[int, list[int]]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments.items()
        ],
    )


def test_a_topic_is_its_record_its_configs_and_its_partitions_in_one_batch() -> None:
    world = World(brokers=3)
    result = world.create("orders", partitions=2, replication_factor=3, retention_ms="5")
    records = world.batches[-1]
    assert [type(record) for record in records] == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    topic = world.image.topics.by_name("orders")
    assert topic is not None and topic.topic_id == result.topic_id
    assert world.image.topics.name_of(result.topic_id) == "orders"
    assert world.image.topic_config("orders") == {"retention.ms": "5"}
    for partition in topic.partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directory_of(2) == world.image.brokers[2].directories[0]
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    configs = {config.name: config for config in result.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)


def test_replicas_of_a_partition_are_on_different_hosts() -> None:
    """The host is that of the listener of brokers: clients may reach all of them through one proxy."""
    world = World(brokers=0)
    for broker_id in range(1, 7):
        request = registration(broker_id)
        request.listeners = [
            Listener(name="CLIENTS", host="proxy", port=9000 + broker_id, security_protocol=0),
            Listener(name="PLAINTEXT", host=f"machine-{broker_id % 3}", port=9092 + broker_id, security_protocol=0),
        ]
        world.do(world.controller.register_broker(request))
        world.unfence(broker_id)
    world.create("orders", partitions=12, replication_factor=3)
    partitions = present(world.image.topics.by_name("orders")).partitions.values()
    assert all({replica % 3 for replica in partition.replicas} == {0, 1, 2} for partition in partitions)
    assert {partition.leader for partition in partitions} == {1, 2, 3, 4, 5, 6}


def test_minus_one_means_the_nodes_defaults() -> None:
    world = World({"num.partitions": "4", "default.replication.factor": "2"}, brokers=2)
    result = world.create("orders", partitions=-1, replication_factor=-1)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 2)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION, "'.' or '..' is not allowed"),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION, "'.' or '..' is not allowed"),
        ("a" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        ("füße", ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        ("a\n", ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII alphanumerics"),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST, "is prohibited"),
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'there' already exists."),
        ("my_topic.a", ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with existing topic: my.topic.a"),
        ("my.topic.a", ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
    ],
)
def test_names_that_are_refused(name: str, code: ErrorCode, message: str) -> None:
    world = World()
    world.create("there")
    world.create("my.topic.a")
    result = world.create(name)
    assert result.error_code == code
    assert message in result.error_message
    assert len(world.image.topics) == 2


def test_a_name_is_free_again_once_its_topic_is_deleted() -> None:
    world = World()
    world.create("a.b")
    first = world.image.topics.id_of("a.b")
    world.do(world.controller.delete_topics(DeleteTopicsRequest(topic_names=["a.b"])))
    assert world.create("a_b").error_code == 0
    world.do(world.controller.delete_topics(DeleteTopicsRequest(topic_names=["a_b"])))
    assert world.create("a.b").error_code == 0
    assert world.image.topics.id_of("a.b") != first


def test_topics_of_a_request_that_collide_with_each_other() -> None:
    world = World()
    assert create_topics(world, automatic("x.y"), automatic("x_y")) == [
        (0, None),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'x_y' collides with existing topic: x.y"),
    ]


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (10_001, 1, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_numbers_that_are_refused(partitions: int, replication_factor: int, code: ErrorCode) -> None:
    world = World()
    assert world.create("orders", partitions, replication_factor).error_code == code


def test_bad_configs_are_refused() -> None:
    world = World()
    result = world.create("orders", retention_ms="soon")
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_CONFIG, [])
    assert world.create("orders", retension_ms="1").error_code == ErrorCode.INVALID_CONFIG
    topic = automatic("orders")
    topic.configs = [CreatableTopicConfig(name="retention.ms", value=None)]
    assert create_topics(world, topic)[0][0] == ErrorCode.INVALID_CONFIG


def test_a_refused_topic_does_not_keep_others_from_being_made() -> None:
    world = World()
    twice = automatic("twice")
    results = create_topics(world, automatic("bad/name"), automatic("good"), twice, twice)
    assert [code for code, _ in results] == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0, ErrorCode.INVALID_REQUEST]
    assert list(world.image.topics.names) == ["good"]


def test_validate_only_makes_nothing() -> None:
    world = World()
    assert create_topics(world, automatic("orders"), validate_only=True) == [(0, None)]
    assert len(world.image.topics) == 0


def test_configs_are_told_only_to_those_who_may_see_them() -> None:
    world = World()
    response = world.do(world.controller.create_topics(CreateTopicsRequest(topics=[automatic("orders")]), set()))
    (result,) = response.topics
    assert (result.error_code, result.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (result.num_partitions, result.configs) == (-1, [])


def test_manual_assignment() -> None:
    world = World(brokers=3)
    assert create_topics(world, manual("orders", {1: [3, 1], 0: [2, 3]})) == [(0, None)]
    topic = world.image.topics.by_name("orders")
    assert topic is not None
    assert topic.partitions[0].replicas == (2, 3)
    assert topic.partitions[1].replicas == (3, 1)
    assert topic.partitions[1].leader == 3


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ({0: []}, "an empty replica list"),
        ({0: [1, 1]}, "the broker 1 more than once"),
        ({0: [9]}, "broker 9, but no such broker is registered"),
        ({0: [1], 1: [1, 2]}, "not consistent with previous partitions"),
        ({1: [1]}, "consecutive 0-based integer sequence"),
        ({0: [4]}, "fenced or in controlled shutdown"),
    ],
)
def test_manual_assignments_that_are_refused(assignments: dict[int, list[int]], message: str) -> None:
    world = World(brokers=4)
    world.do(world.controller.fence_broker(4, world.image.brokers[4].epoch))
    ((code, text),) = create_topics(world, manual("orders", assignments))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert text is not None and message in text


def test_manual_assignment_excludes_counts() -> None:
    world = World()
    topic = manual("orders", {0: [1]})
    topic.num_partitions = 1
    assert create_topics(world, topic)[0][0] == ErrorCode.INVALID_REQUEST
    topic.num_partitions, topic.replication_factor = -1, 1
    assert create_topics(world, topic)[0][0] == ErrorCode.INVALID_REQUEST


def test_a_fenced_broker_holds_but_does_not_lead_when_it_is_needed() -> None:
    world = World(brokers=2)
    world.do(world.controller.fence_broker(1, world.image.brokers[1].epoch))
    world.create("orders", partitions=3, replication_factor=2)
    topic = world.image.topics.by_name("orders")
    assert topic is not None
    assert all(partition.replicas == (2, 1) and partition.isr == (2,) for partition in topic.partitions.values())
    world.do(world.controller.fence_broker(2, world.image.brokers[2].epoch))
    assert world.create("more").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def add_partitions(
    world: World, name: str, count: int, assignments: list[list[int]] | None = None, *, validate_only: bool = False
) -> int:
    wanted = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
    )
    request = CreatePartitionsRequest(topics=[wanted], validate_only=validate_only)
    return int(world.do(world.controller.create_partitions(request)).results[0].error_code)


def test_partitions_are_added_behind_those_that_exist() -> None:
    world = World(brokers=2)
    world.create("orders", partitions=1, replication_factor=2)
    assert add_partitions(world, "orders", 3) == 0
    assert add_partitions(world, "orders", 4, [[2, 1]]) == 0
    topic = world.image.topics.by_name("orders")
    assert topic is not None
    assert sorted(topic.partitions) == [0, 1, 2, 3]
    assert topic.partitions[3].replicas == (2, 1)
    assert add_partitions(world, "orders", 9, validate_only=True) == 0
    assert len(present(world.image.topics.by_name("orders")).partitions) == 4


def test_partitions_that_are_not_added() -> None:
    world = World(brokers=2)
    world.create("orders", partitions=2)
    assert add_partitions(world, "orders", 2) == ErrorCode.INVALID_PARTITIONS
    assert add_partitions(world, "orders", 1) == ErrorCode.INVALID_PARTITIONS
    assert add_partitions(world, "nowhere", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert add_partitions(world, "orders", 4, [[1]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(world, "orders", 3, [[1, 2]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(world, "orders", 20_000) == ErrorCode.POLICY_VIOLATION


def delete(world: World, *topics: tuple[str | None, bytes]) -> list[tuple[str | None, bytes, int]]:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics])
    response = world.do(world.controller.delete_topics(request))
    return [(result.name, result.topic_id, result.error_code) for result in response.responses]


def test_topics_are_deleted_by_name_or_by_id_with_their_configs() -> None:
    world = World()
    by_name, by_id = world.create("a", retention_ms="1").topic_id, world.create("b").topic_id
    assert delete(world, ("a", ZERO_UUID), (None, by_id)) == [("a", by_name, 0), ("b", by_id, 0)]
    assert len(world.image.topics) == 0
    assert world.image.configs == World(brokers=0).image.configs


def test_deletions_that_are_refused() -> None:
    world = World()
    topic_id = world.create("a").topic_id
    unknown = bytes(15) + b"x"
    assert [code for _, _, code in delete(world, ("nowhere", ZERO_UUID), (None, unknown), (None, ZERO_UUID))] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [code for _, _, code in delete(world, ("a", topic_id))] == [ErrorCode.INVALID_REQUEST]
    assert [code for _, _, code in delete(world, ("a", ZERO_UUID), ("a", ZERO_UUID))] == [ErrorCode.INVALID_REQUEST]
    assert [code for _, _, code in delete(world, (None, topic_id), ("a", ZERO_UUID))] == [0, 0]


def test_deletion_can_be_disabled() -> None:
    world = World({"delete.topic.enable": "false"})
    world.create("a")
    assert [code for _, _, code in delete(world, ("a", ZERO_UUID))] == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert len(world.image.topics) == 1


def test_partitions_added_during_a_reassignment_have_the_replicas_it_ends_with() -> None:
    world = World(brokers=4)
    world.assign("orders", (1, 2))
    world.reassign("orders", (3, 4))
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)])
    world.do(world.controller.create_partitions(request))
    assert [len(world.partition("orders", index).replicas) for index in range(3)] == [4, 2, 2]
