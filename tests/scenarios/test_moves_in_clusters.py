"""Leaders and followers, as processes, move their replicas between two log directories while they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from clients.librdkafka import close
from penstock.client.wire.admin import ResourceType
from penstock.model.ids import TopicPartition
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode
from waiting import wait_until

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
PROPERTIES = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def disk_of(broker: RunningNode) -> str:
    return os.path.join(broker.directory, "disk")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, controllers=1, properties=PROPERTIES) as cluster:
        with ThreadPoolExecutor() as threads:
            list(threads.map(add_disk, cluster.brokers))
        yield cluster


def add_disk(broker: RunningNode) -> None:
    broker.restart(properties={"log.dirs": f"{broker.data_directory},{disk_of(broker)}"})


def write(cluster: RunningCluster, topic: str, first: int, count: int) -> None:
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, f"{number} ".encode() + os.urandom(1000), partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not refused


def numbers(cluster: RunningCluster, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([Place(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found.append(int((message.value() or b"").split(b" ")[0]))
    close(consumer)
    return found


def test_all_replicas_move_and_their_leader_dies(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", partitions=1, replicas=3)
    cluster.wait_for_isr("orders")
    write(cluster, "orders", 0, 500)
    partition = TopicPartition("orders", 0)
    targets: dict[int, str] = {}
    with cluster.admin() as admin:
        for each in admin.log_dirs.describe():
            if any(replica.topic == "orders" for replica in each.replicas):
                broker = cluster.broker(each.broker_id)
                others = {broker.data_directory, disk_of(broker)} - {each.path}
                targets[each.broker_id] = others.pop()
        for broker_id, target in targets.items():
            admin.configs.alter(ResourceType.BROKER, str(broker_id), {THROTTLE: "100000"})
            admin.log_dirs.move(broker_id, {partition: target})
        assert {move.broker_id for move in admin.log_dirs.moves()} == {1, 2, 3}
    leader = cluster.leader_of("orders", 0)
    leader.kill()
    write(cluster, "orders", 500, 200)
    leader.start()
    with cluster.admin() as admin:
        for broker_id in targets:
            admin.configs.alter(ResourceType.BROKER, str(broker_id), delete=[THROTTLE])
        wait_until(lambda: not admin.log_dirs.moves(), "the moves end")
        homes = {
            each.broker_id: each.path
            for each in admin.log_dirs.describe()
            if any(replica.topic == "orders" for replica in each.replicas)
        }
    assert homes == targets
    cluster.wait_for_isr("orders")
    write(cluster, "orders", 700, 100)
    assert numbers(cluster, "orders", 800) == list(range(800))


def test_a_replica_that_leaves_its_broker_does_not_finish_its_move(cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        admin.topics.create("leaves", assignment=[[1, 2]])
        cluster.wait_for_isr("leaves")
        write(cluster, "leaves", 0, 100)
        broker = cluster.broker(1)
        (home,) = (
            each.path
            for each in admin.log_dirs.describe([1])
            if any(replica.topic == "leaves" for replica in each.replicas)
        )
        (target,) = {broker.data_directory, disk_of(broker)} - {home}
        admin.configs.alter(ResourceType.BROKER, "1", {THROTTLE: "1"})
        admin.log_dirs.move(1, {TopicPartition("leaves", 0): target})
        assert [move.topic for move in admin.log_dirs.moves([1])] == ["leaves"]
        admin.reassignments.begin({TopicPartition("leaves", 0): [3, 2]})
        cluster.wait_until(lambda: not admin.reassignments.list(), "the replica on broker 3")
        cluster.wait_until(lambda: not admin.log_dirs.moves([1]), "the end of the move")
        admin.configs.alter(ResourceType.BROKER, "1", delete=[THROTTLE])
    assert numbers(cluster, "leaves", 100) == list(range(100))
