"""Clients go on when the leader they talk to is stopped, and when it is killed."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from clients.librdkafka import close
from narrowing import present
from penstock.testing.clusters import RunningCluster, start_cluster
from waiting import wait_until

RECORDS_BETWEEN = 20
DEADLINE_S = 60.0
PROPERTIES = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, properties=PROPERTIES) as cluster:
        yield cluster


class Traffic:
    """What a client under test has written and read, for the test that moves leaders meanwhile."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.read: list[bytes] = []
        self.stopping = threading.Event()

    def next_value(self) -> bytes:
        return b"%d" % len(self.written)

    def wait_for_more(self) -> None:
        wanted = len(self.written) + RECORDS_BETWEEN
        wait_until(lambda: len(self.read) >= wanted, lambda: f"{len(self.written)} written, {len(self.read)} read")


def confluent(bootstrap: str, topic: str, traffic: Traffic) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while not traffic.stopping.is_set():
            producer.produce(topic, traffic.next_value(), partition=0)
            assert producer.flush(DEADLINE_S) == 0
            traffic.written.append(traffic.next_value())
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                traffic.read.append(present(message.value()))
    finally:
        close(consumer)


def kafka_python(bootstrap: str, topic: str, traffic: Traffic) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import TopicPartition

    addresses = bootstrap.split(",")
    producer = KafkaProducer(bootstrap_servers=addresses, acks="all", retries=1000, request_timeout_ms=10_000)
    consumer = KafkaConsumer(bootstrap_servers=addresses, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    consumer.assign([TopicPartition(topic, 0)])
    try:
        while not traffic.stopping.is_set():
            producer.send(topic, traffic.next_value(), partition=0).get(DEADLINE_S)
            traffic.written.append(traffic.next_value())
            for records in consumer.poll(timeout_ms=50).values():
                traffic.read += [record.value for record in records]
    finally:
        producer.close()
        consumer.close()


def aiokafka(bootstrap: str, topic: str, traffic: Traffic) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.structs import TopicPartition

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50)
        await producer.start()
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        try:
            while not traffic.stopping.is_set():
                await producer.send_and_wait(topic, traffic.next_value(), partition=0)
                traffic.written.append(traffic.next_value())
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    traffic.read += [record.value for record in records]
        finally:
            await consumer.stop()
            await producer.stop()

    asyncio.run(run())
    gc.collect()  # it leaves the sockets of refused connections to the collector: here, not in somebody else's test


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("client", [confluent, kafka_python, aiokafka])
def test_clients_follow_the_leader(
    cluster: RunningCluster, unique_topic: Callable[[str], str], client: Callable[[str, str, Traffic], None]
) -> None:
    topic = unique_topic("followed")
    cluster.create_topic(topic, 1)
    traffic = Traffic()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            client(cluster.bootstrap, topic, traffic)
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        traffic.wait_for_more()
        for harm in ("stop", "kill"):
            leader = cluster.leader_of(topic, 0)
            getattr(leader, harm)()
            traffic.wait_for_more()
            leader.start()
            cluster.wait_for_isr(topic)
        traffic.wait_for_more()
    finally:
        traffic.stopping.set()
        thread.join()
        for broker in cluster.brokers:
            if not broker.running:
                broker.start()
    assert not failures
    # A record may come twice where the client is not idempotent; none is missing, and first comings are in order.
    first = list(dict.fromkeys(traffic.read))
    assert first == traffic.written[: len(first)]
