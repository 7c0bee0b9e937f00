"""Admin against a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.admin.topics import EARLIEST, LATEST
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, uuid_from_text
from penstock.testing.nodes import RunningNode


@pytest.fixture
def admin(broker: RunningNode) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


def write(broker: RunningNode, topic: str, count: int, first_timestamp: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=first_timestamp + number)
    assert producer.flush(30) == 0


def test_a_topic_from_creation_to_deletion(admin: Admin, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("orders")
    created = admin.topics.create(name, partitions=2, configs={"retention.ms": "60000"})
    assert (created.name, created.partitions, created.replication_factor) == (name, 2, 1)
    assert created.topic_id is not None
    uuid_from_text(created.topic_id)
    assert name in [topic.name for topic in admin.topics.list()]

    admin.topics.add_partitions(name, 3)
    (described,) = admin.topics.describe([name])
    assert described.topic_id == created.topic_id
    assert [partition.partition for partition in described.partitions] == [0, 1, 2]
    assert {partition.leader for partition in described.partitions} == {1}
    assert not any(partition.under_replicated for partition in described.partitions)

    admin.topics.delete(name)
    with pytest.raises(KafkaError) as caught:
        admin.topics.describe([name])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_cannot_be_created_is_refused_with_a_reason(admin: Admin, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("twice")
    admin.topics.create(name)
    for arguments, code in (
        ({"name": name}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "new", "replication_factor": 9}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "new", "configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaError) as caught:
            admin.topics.create(**arguments)
        assert caught.value.code is code
        assert str(arguments["name"]) in str(caught.value)


def test_validate_only_creates_nothing(admin: Admin, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("trial")
    admin.topics.create(name, validate_only=True)
    assert name not in [topic.name for topic in admin.topics.list()]


def test_offsets_and_deleting_records(admin: Admin, broker: RunningNode, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("trimmed")
    admin.topics.create(name, partitions=1)
    now = time.time_ns() // 1_000_000
    write(broker, name, 10, now)
    partition = TopicPartition(name, 0)
    assert admin.topics.offsets([partition], EARLIEST) == {partition: 0}
    assert admin.topics.offsets([partition], LATEST) == {partition: 10}
    assert admin.topics.offsets([partition], now + 4) == {partition: 4}
    assert admin.topics.offsets([partition], now + 10) == {partition: -1}
    assert admin.topics.delete_records({partition: 6}) == {partition: 6}
    assert admin.topics.offsets([partition], EARLIEST) == {partition: 6}
    assert admin.topics.delete_records({partition: -1}) == {partition: 10}
    with pytest.raises(KafkaError) as caught:
        admin.topics.delete_records({partition: 11})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError, match="does not exist"):
        admin.topics.offsets([TopicPartition(name, 7)])


def test_settings_of_a_topic(admin: Admin, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("settings")
    admin.topics.create(name, configs={"retention.ms": "1000"})
    admin.configs.alter(ResourceType.TOPIC, name, {"segment.ms": "5000"}, delete=["retention.ms"])
    entries = {entry.name: entry for entry in admin.configs.describe(ResourceType.TOPIC, name)}
    assert (entries["segment.ms"].value, entries["segment.ms"].source) == ("5000", "DYNAMIC_TOPIC_CONFIG")
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("604800000", "DEFAULT_CONFIG")
    with pytest.raises(KafkaError) as caught:
        admin.configs.alter(ResourceType.TOPIC, name, {"cleanup.policy": "shred"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_settings_of_a_broker(admin: Admin, broker: RunningNode) -> None:
    name = str(broker.node_id)
    assert ("node.id", name) in [(e.name, e.value) for e in admin.configs.describe(ResourceType.BROKER, name)]
    admin.configs.alter(ResourceType.BROKER, name, {"max.connections.per.ip": "12345"})
    entries = {entry.name: entry for entry in admin.configs.describe(ResourceType.BROKER, name)}
    assert (entries["max.connections.per.ip"].value, entries["max.connections.per.ip"].source) == (
        "12345",
        "DYNAMIC_BROKER_CONFIG",
    )
    admin.configs.alter(ResourceType.BROKER, name, delete=["max.connections.per.ip"])


def test_the_cluster(admin: Admin, broker: RunningNode) -> None:
    cluster = admin.cluster.describe()
    assert [(node.broker_id, node.host, node.port, node.fenced) for node in cluster.brokers] == [
        (broker.node_id, broker.host, broker.port, False)
    ]
    assert cluster.quorum is not None
    assert cluster.quorum.leader_id == broker.node_id
    assert [voter.node_id for voter in cluster.quorum.voters] == [broker.node_id]
    assert cluster.quorum.high_watermark > 0
    assert cluster.under_replicated == cluster.offline == ()
