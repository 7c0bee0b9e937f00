"""The broker that coordinates is killed: groups and transactions go on with another one, and nothing is lost."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from clients.drivers import DEADLINE_S
from clients.group_members import KINDS
from clients.librdkafka import close
from clients.live_group import PROPERTIES, Group
from narrowing import present
from penstock.broker.coordinators.hashing import partition_for
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode

INTERNAL_PARTITIONS = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    properties = {
        **PROPERTIES,
        "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
        "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    }
    with start_cluster(tmp_path_factory.mktemp("failover"), brokers=3, properties=properties) as cluster:
        yield cluster


def coordinator(cluster: RunningCluster, topic: str, key: str) -> RunningNode:
    return cluster.leader_of(topic, partition_for(key, INTERNAL_PARTITIONS))


def kill_coordinator(cluster: RunningCluster, topic: str, key: str) -> RunningNode:
    """On return another broker is it."""
    killed = coordinator(cluster, topic, key)
    killed.kill()
    cluster.wait_until(
        lambda: coordinator(cluster, topic, key).node_id != killed.node_id, f"another coordinator of {key}"
    )
    return killed


@pytest.mark.parametrize("kind", ["confluent", "confluent-consumer-protocol", "aiokafka"])
def test_a_group_goes_on_with_another_coordinator(cluster: RunningCluster, kind: str) -> None:
    group = Group(cluster.bootstrap, KINDS[kind], replicas=3)
    cluster.wait_for_isr(group.topic)
    group.join(3)
    group.settle()
    group.send(60)
    group.read_all()
    group.commit()
    cluster.wait_for_isr("__consumer_offsets")
    before = len(group.read)
    killed = kill_coordinator(cluster, "__consumer_offsets", group.name)
    try:
        group.send(60)
        group.settle()
        group.read_all()
        assert [each for each in group.read[before:] if int(each.value) < 60] == []
        group.commit()  # so all know the new coordinator: librdkafka sends no LeaveGroup if it does not
        group.leave()
        group.settle()
        group.send(60)
        group.read_all()
    finally:
        killed.start()
    cluster.wait_for_isr("__consumer_offsets")
    group.end()


def test_transactions_go_on_with_another_coordinator(cluster: RunningCluster) -> None:
    """Read, process, write: each record once, though coordinators of both kinds are killed."""
    source, target = f"source-{uuid.uuid4().hex[:8]}", f"target-{uuid.uuid4().hex[:8]}"
    transactional_id, group = f"id-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    for topic in (source, target):
        cluster.create_topic(topic, 3, 3)
    count = 300
    feed = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(count):
        feed.produce(source, str(number).encode(), partition=number % 3)
    assert feed.flush(DEADLINE_S) == 0

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([source])
    writer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    writer.init_transactions(DEADLINE_S)
    victims = iter([("__transaction_state", transactional_id), ("__consumer_offsets", group)])
    processed = 0
    killed: list[RunningNode] = []
    deadline = time.monotonic() + 4 * DEADLINE_S
    try:
        while processed < count:
            assert time.monotonic() < deadline, f"only {processed} of {count} after all this time"
            messages = [each for each in consumer.consume(20, 0.2) if each.error() is None]
            if not messages:
                continue
            writer.begin_transaction()
            for number, message in enumerate(messages):
                writer.produce(target, message.value(), partition=number % 3)
            if processed >= count * (1 + len(killed)) / 4 and (victim := next(victims, None)) is not None:
                for node in killed:
                    node.start()
                    cluster.wait_for_isr(victim[0])
                killed.append(kill_coordinator(cluster, *victim))
            try:
                writer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), DEADLINE_S
                )
                writer.commit_transaction(DEADLINE_S)
                processed += len(messages)
            except KafkaException as error:
                assert error.args[0].txn_requires_abort() or error.args[0].retriable(), error
                writer.abort_transaction(DEADLINE_S)
                for each in consumer.committed(consumer.assignment(), DEADLINE_S):
                    consumer.seek(TopicPartition(each.topic, each.partition, max(0, each.offset)))
        assert len(killed) == 2
    finally:
        close(consumer)
        for node in killed:
            if not node.running:
                node.start()
    assert sorted(map(int, read_committed(cluster, target, count))) == list(range(count))


def read_committed(cluster: RunningCluster, topic: str, count: int) -> list[bytes]:
    """So many records, and as many more as come before the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[bytes] = []
    at_end: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
        deadline = time.monotonic() + DEADLINE_S
        for _ in itertools.takewhile(lambda _: len(found) < count or len(at_end) < 3, itertools.count()):
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(present(message.value()))
                at_end.discard(present(message.partition()))
            elif error.code() == KafkaError._PARTITION_EOF:  # others are of brokers that have died
                at_end.add(present(message.partition()))
    finally:
        close(consumer)
    return found
