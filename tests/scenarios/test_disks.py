"""Brokers with two log directories, as processes: one directory vanishes, and one is replaced by an empty one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from clients.librdkafka import close
from penstock.client.wire.admin import Admin
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode

PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "200",
}


def disk_of(broker: RunningNode) -> str:
    """The directory that all topics are in: the other one is cordoned."""
    return os.path.join(broker.directory, "disk")


def add_disk(broker: RunningNode) -> None:
    directories = f"{broker.data_directory},{disk_of(broker)}"
    broker.restart(properties={"log.dirs": directories, "cordoned.log.dirs": broker.data_directory})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=2, controllers=1, properties=PROPERTIES) as cluster:
        with ThreadPoolExecutor() as threads:
            list(threads.map(add_disk, cluster.brokers))
        yield cluster


@pytest.fixture
def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> str:
    name = f"orders-{request.node.name[:20]}"
    cluster.create_topic(name, partitions=1, replicas=2)
    return name


def write(cluster: RunningCluster, topic: str, value: str) -> None:
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not refused


def values(cluster: RunningCluster, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, message
        found.append((message.value() or b"").decode())
    close(consumer)
    return found


def other_than(cluster: RunningCluster, broker: RunningNode) -> RunningNode:
    return next(each for each in cluster.brokers if each is not broker)


def test_a_directory_that_vanishes_is_offline_alone_and_is_back_after_a_restart(
    cluster: RunningCluster, topic: str
) -> None:
    write(cluster, topic, "a")
    leader = cluster.leader_of(topic, 0)
    os.rename(disk_of(leader), f"{disk_of(leader)}-unmounted")
    cluster.wait_until(lambda: cluster.leader_of(topic, 0) is not leader, "another leader")
    write(cluster, topic, "b")
    assert leader.running
    with Admin(leader.bootstrap) as admin:
        described = {each.path: each.error for each in admin.log_dirs.describe([leader.node_id])}
    assert described == {leader.data_directory: None, disk_of(leader): "KAFKA_STORAGE_ERROR"}
    assert "has failed and is offline" in leader.log_text()
    assert leader.stop() == 0
    os.rename(f"{disk_of(leader)}-unmounted", disk_of(leader))
    leader.start()
    cluster.wait_for_isr(topic)
    assert values(cluster, topic, 2) == ["a", "b"]


def test_an_empty_disk_in_the_place_of_a_full_one_is_never_elected(cluster: RunningCluster, topic: str) -> None:
    write(cluster, topic, "a")
    replaced = cluster.leader_of(topic, 0)
    survivor = other_than(cluster, replaced)
    survivor.kill()
    cluster.wait_until(lambda: list(cluster.describe(topic).partitions[0].isr) == [replaced.node_id], "one in sync")
    write(cluster, topic, "b")
    replaced.kill()
    shutil.rmtree(disk_of(replaced))
    for broker in cluster.brokers:
        broker.begin_start()
    for broker in cluster.brokers:
        broker.wait_ready()
    (partition,) = cluster.describe(topic).partitions
    assert partition.leader is None and list(partition.isr) == []
    segment = os.path.join(disk_of(survivor), f"{topic}-0", f"{0:020d}.log")
    assert os.path.getsize(segment) > 0
