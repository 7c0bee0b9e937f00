"""Brokers are killed while our clients write and read: every record sent is read, or its sender got an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from client_world import DEADLINE_S
from penstock import Admin, Consumer, Delivery, Producer, ShareConsumer, String
from penstock.client.errors import ClientError
from penstock.testing.clusters import RunningCluster, start_cluster
from waiting import wait_until

PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 3
RECORDS_BETWEEN = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, properties=PROPERTIES) as cluster:
        yield cluster


class Traffic:
    """A thread that sends numbers and one that reads them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.deliveries: list[Delivery] = []
        self.read: set[int] = set()
        self.problems: list[BaseException] = []
        self.stopping = threading.Event()
        self.written = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.problems.append(error)
            self.written.set()

    def _write(self) -> None:
        with Producer(self.bootstrap, key=String(), value=String()) as producer:
            while not self.stopping.is_set():
                number = len(self.deliveries)
                self.deliveries.append(producer.send(self.topic, str(number), key=str(number % 50)))
                time.sleep(0.001)
        self.written.set()

    def _read(self) -> None:
        with Consumer(self.bootstrap, self.topic, group="readers", value=String()) as consumer:
            last = time.monotonic()
            while not self.written.is_set() or len(self.read) < len(self.deliveries):
                for record in consumer.batch(500, 0.2):
                    self.read.add(int(record.value))
                    last = time.monotonic()
                assert time.monotonic() - last < DEADLINE_S, f"{len(self.read)} of {len(self.deliveries)} were read"

    def wait_for_more(self) -> None:
        wanted = len(self.read) + RECORDS_BETWEEN
        wait_until(
            lambda: self.problems or len(self.read) >= wanted, lambda: f"{wanted} records read, not {len(self.read)}"
        )
        assert not self.problems

    def finish(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()
        if self.problems:
            raise self.problems[0]


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_is_silent(cluster: RunningCluster) -> None:
    cluster.create_topic("numbers", PARTITIONS, 3)
    traffic = Traffic(cluster.bootstrap, "numbers")
    try:
        traffic.wait_for_more()
        for _ in range(2):
            leader = cluster.leader_of("numbers", 0)
            leader.kill()
            traffic.wait_for_more()
            leader.start()
            traffic.wait_for_more()
    finally:
        traffic.finish()
    failures = [delivery.exception() for delivery in traffic.deliveries if delivery.exception() is not None]
    assert not failures
    assert traffic.read == set(range(len(traffic.deliveries)))
    sent = {(each.partition, each.offset) for each in (delivery.result() for delivery in traffic.deliveries)}
    assert len(sent) == len(traffic.deliveries)


@pytest.mark.timeout(300)
def test_workers_outlive_the_leaders_of_their_partitions(cluster: RunningCluster) -> None:
    """And the coordinators of their group, which may be on the same brokers."""
    cluster.create_topic("jobs", PARTITIONS, 3)
    with Admin(cluster.bootstrap) as admin:
        admin.share_groups.reset("workers", "earliest", topics=["jobs"])
    done: set[int] = set()
    written = threading.Event()
    problems: list[BaseException] = []
    sent: set[int] = set()

    def work() -> None:
        try:
            with ShareConsumer(cluster.bootstrap, "jobs", group="workers", value=String(), max_records=10) as consumer:
                while not written.is_set() or done != sent:
                    record = consumer.poll(0.2)
                    if record is not None:
                        done.add(int(record.value))
        except BaseException as error:  # noqa: BLE001  # the test raises it
            problems.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        with Producer(cluster.bootstrap, value=String()) as producer:
            for broker in (None, *cluster.brokers[:2]):
                if broker is not None:
                    broker.kill()
                for _ in range(RECORDS_BETWEEN):
                    producer.send("jobs", str(len(sent)))
                    sent.add(len(sent))
                producer.flush()
                wait_until(lambda: problems or done == sent, lambda: f"{len(done)} of {len(sent)} jobs done")
                if broker is not None:
                    broker.start()
                    cluster.wait_for_isr("jobs")
    finally:
        written.set()
        for worker in workers:
            worker.join()
    assert not problems, problems[0]
    with Admin(cluster.bootstrap) as admin:
        assert sum(each.lag or 0 for each in admin.share_groups.offsets("workers")) == 0


def test_with_no_broker_left_every_record_has_its_error(cluster: RunningCluster) -> None:
    cluster.create_topic("short-lived", 1, 3)
    producer = Producer(cluster.bootstrap, delivery_timeout=4.0)
    producer.send("short-lived", b"alive").result(DEADLINE_S)
    for broker in cluster.brokers:
        broker.pause()
    try:
        deliveries = [producer.send("short-lived", b"%d" % number) for number in range(100)]
        with pytest.raises(ClientError, match="100 records were not delivered; the first: short-lived-0"):
            producer.close()
        assert all(delivery.done() and delivery.exception() is not None for delivery in deliveries)
    finally:
        for broker in cluster.brokers:
            broker.resume()
