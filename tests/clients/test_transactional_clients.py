"""Transactions with real clients: all or nothing, for records and for offsets, whichever process is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from clients.drivers import DEADLINE_S
from clients.librdkafka import close
from clients.live_group import unique
from narrowing import present
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

PARTITIONS = 3
PROPERTIES = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("transactions") / "node", properties=PROPERTIES) as node:
        yield node


def new_topic(bootstrap: str) -> str:
    name = unique("topic")
    with Admin(bootstrap, timeout=DEADLINE_S) as admin:
        admin.topics.create(name, partitions=PARTITIONS, replication_factor=1)
    return name


def read(bootstrap: str, topic: str, *, committed: bool) -> list[str]:
    """Everything that is there now, up to where such a reader may go."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        found: list[str] = []
        at_end: set[int] = set()
        deadline = time.monotonic() + DEADLINE_S
        while len(at_end) < PARTITIONS:
            assert time.monotonic() < deadline
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(present(message.value()).decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                at_end.add(present(message.partition()))
        return sorted(found)
    finally:
        close(consumer)


def producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    new = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0, **settings})
    new.init_transactions(DEADLINE_S)
    return new


def send(producer: Producer, topic: str, *values: str) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


def test_committed_is_seen_and_aborted_is_not(node: RunningNode) -> None:
    topic = new_topic(node.bootstrap)
    writer = producer(node.bootstrap, unique("id"))
    for number in range(6):
        writer.begin_transaction()
        send(writer, topic, *(f"{number}-{letter}" for letter in "abcd"))
        if number % 2:
            writer.abort_transaction(DEADLINE_S)
        else:
            writer.commit_transaction(DEADLINE_S)
    expected = [f"{number}-{letter}" for number in (0, 2, 4) for letter in "abcd"]
    wait_until(lambda: read(node.bootstrap, topic, committed=True) == expected)
    assert len(read(node.bootstrap, topic, committed=False)) == 24


def test_nobody_reads_past_an_open_transaction(node: RunningNode) -> None:
    topic = new_topic(node.bootstrap)
    first, second = producer(node.bootstrap, unique("id")), producer(node.bootstrap, unique("id"))
    first.begin_transaction()
    send(first, topic, "open-a", "open-b", "open-c")
    second.begin_transaction()
    send(second, topic, "done-a", "done-b", "done-c")
    second.commit_transaction(DEADLINE_S)
    assert read(node.bootstrap, topic, committed=True) == []
    first.commit_transaction(DEADLINE_S)
    wait_until(lambda: len(read(node.bootstrap, topic, committed=True)) == 6)


def test_a_zombie_is_fenced(node: RunningNode) -> None:
    topic = new_topic(node.bootstrap)
    transactional_id = unique("id")
    zombie = producer(node.bootstrap, transactional_id)
    zombie.begin_transaction()
    send(zombie, topic, "zombie")
    successor = producer(node.bootstrap, transactional_id)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(DEADLINE_S)
    assert refused.value.args[0].fatal()
    successor.begin_transaction()
    send(successor, topic, "successor")
    successor.commit_transaction(DEADLINE_S)
    wait_until(lambda: read(node.bootstrap, topic, committed=True) == ["successor"])


def test_offsets_move_with_the_transaction_or_not_at_all(node: RunningNode) -> None:
    source, target = new_topic(node.bootstrap), new_topic(node.bootstrap)
    group = unique("group")
    feed = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    send(feed, source, *map(str, range(30)))
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([source])
    writer = producer(node.bootstrap, unique("id"))
    processed = 0
    attempt = 0
    deadline = time.monotonic() + DEADLINE_S
    while processed < 30:
        assert time.monotonic() < deadline
        messages = [each for each in consumer.consume(7, 0.2) if each.error() is None]
        if not messages:
            continue
        attempt += 1
        writer.begin_transaction()
        send(writer, target, *(present(each.value()).decode() for each in messages))
        positions = consumer.position(consumer.assignment())
        writer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
        if attempt % 2:
            writer.abort_transaction(DEADLINE_S)
            for each in consumer.committed(consumer.assignment(), DEADLINE_S):
                consumer.seek(TopicPartition(each.topic, each.partition, max(0, each.offset)))
        else:
            writer.commit_transaction(DEADLINE_S)
            processed += len(messages)
    close(consumer)
    wait_until(lambda: read(node.bootstrap, target, committed=True) == sorted(map(str, range(30))))
    assert len(read(node.bootstrap, target, committed=False)) > 30


def test_a_transaction_outlives_a_crash_of_the_broker(tmp_path: Path) -> None:
    with start_node(tmp_path / "node", properties=PROPERTIES) as node:
        topic = new_topic(node.bootstrap)
        writer = producer(node.bootstrap, unique("id"))
        writer.begin_transaction()
        send(writer, topic, "first")
        node.kill()
        node.start()
        send(writer, topic, "a", "b", "c")
        writer.commit_transaction(DEADLINE_S)
        wait_until(lambda: read(node.bootstrap, topic, committed=True) == ["a", "b", "c", "first"])


def test_an_abandoned_transaction_is_aborted(tmp_path: Path) -> None:
    quickly = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100", **PROPERTIES}
    with start_node(tmp_path / "node", properties=quickly) as node:
        topic = new_topic(node.bootstrap)
        lost = producer(node.bootstrap, unique("id"), **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
        lost.begin_transaction()
        send(lost, topic, "lost")
        plain = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
        send(plain, topic, "plain")
        wait_until(lambda: read(node.bootstrap, topic, committed=True) == ["plain"])


def test_aiokafka(node: RunningNode) -> None:
    topic = new_topic(node.bootstrap)

    async def program() -> None:
        writer = aiokafka.AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=unique("id"))
        await writer.start()
        try:
            async with writer.transaction():
                await writer.send_and_wait(topic, b"kept")
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"dropped")
            await writer.abort_transaction()
            group = unique("group")
            async with writer.transaction():
                await writer.send_and_wait(topic, b"also kept")
                await writer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): 1}, group)
        finally:
            await writer.stop()

    asyncio.run(program())
    wait_until(lambda: read(node.bootstrap, topic, committed=True) == ["also kept", "kept"])


def test_kafka_python(node: RunningNode) -> None:
    topic = new_topic(node.bootstrap)
    writer = kafka.KafkaProducer(bootstrap_servers=node.bootstrap, transactional_id=unique("id"))
    try:
        writer.init_transactions()
        writer.begin_transaction()
        writer.send(topic, b"kept").get(DEADLINE_S)
        writer.commit_transaction()
        writer.begin_transaction()
        writer.send(topic, b"dropped").get(DEADLINE_S)
        writer.abort_transaction()
    finally:
        writer.close()
    wait_until(lambda: read(node.bootstrap, topic, committed=True) == ["kept"])
