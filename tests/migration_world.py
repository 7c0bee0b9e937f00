"""A cluster of Apache Kafka's and Penstock's nodes under load, for tests of `penstock migrate`.

`Load` writes numbered records with an idempotent librdkafka producer, and reads them in a consumer group, for as long
as it runs. Its laws, checked at the end from the log itself: everything that was acknowledged is there once, in the
order in which it was sent; the group has read everything and skipped nothing; committed offsets never went back.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

import confluent_kafka

from penstock.client.wire.admin import Admin
from penstock.client.wire.partition_log import PartitionLog
from penstock.model.ids import TopicPartition

QUIET: Mapping[str, int] = {"log_level": 0}
SETTLE_S = 120.0


def migrate(*arguments: str, bootstrap: str, environment: Mapping[str, str] | None = None) -> str:
    """Run `penstock migrate`; returns what it prints."""
    command = [sys.executable, "-m", "penstock", "migrate", *arguments, "--bootstrap-server", bootstrap]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert outcome.returncode == 0, f"{' '.join(arguments)}: {outcome.stdout}{outcome.stderr}"
    return outcome.stdout


class Load:
    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        rate: float = 200.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings`: of librdkafka, for a cluster with users."""
        self._settings = dict(settings or {})
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._stop = threading.Event()
        self.sent = [0] * partitions
        self.acknowledged = [0] * partitions
        # The number that the group has to read next, by partition: it may read some again, and must not skip any.
        self.reached = [0] * partitions
        self.committed: list[list[int]] = [[] for _ in range(partitions)]
        self.errors: list[str] = []
        self.longest_pause_s = 0.0
        self._last_acknowledged = 0.0
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def step(self) -> float:
        """The longest pause between acknowledgements since the last call."""
        pause, self.longest_pause_s = self.longest_pause_s, 0.0
        return pause

    def wait_for_more(self, records: int = 50) -> None:
        """Until so many more are acknowledged, and the group has read them."""
        goal = sum(self.acknowledged) + records
        deadline = time.monotonic() + SETTLE_S
        while sum(self.acknowledged) < goal or sum(self.reached) < goal:
            assert time.monotonic() < deadline and not self.errors, (
                f"{sum(self.acknowledged)} acknowledged, {sum(self.reached)} read of {goal}: {self.errors}"
            )
            time.sleep(0.05)

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                **QUIET,
                **self._settings,
            }
        )
        begun = time.monotonic()
        while not self._stop.is_set():
            if sum(self.sent) < (time.monotonic() - begun) * self._rate and len(producer) < 5_000:
                partition = sum(self.sent) % self._partitions
                producer.produce(
                    self._topic, str(self.sent[partition]), partition=partition, on_delivery=self._delivered
                )
                self.sent[partition] += 1
                producer.poll(0)
            else:
                producer.poll(0.002)
        producer.flush(SETTLE_S)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        now = time.monotonic()
        if error is not None:
            self.errors.append(str(error))
            return
        partition = message.partition()
        assert partition is not None
        self.acknowledged[partition] += 1
        if self._last_acknowledged:
            self.longest_pause_s = max(self.longest_pause_s, now - self._last_acknowledged)
        self._last_acknowledged = now

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self._topic}-readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **QUIET,
                **self._settings,
            }
        )
        consumer.subscribe([self._topic])
        last_commit = time.monotonic()
        try:
            while not self._stop.is_set() or (self.reached != self.sent and not self.errors):
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    value, partition = message.value(), message.partition()
                    assert value is not None and partition is not None
                    if int(value) > self.reached[partition]:
                        self.errors.append(f"{int(value)} of partition {partition} follows {self.reached[partition]}")
                    self.reached[partition] = max(self.reached[partition], int(value) + 1)
                if time.monotonic() - last_commit > 1.0:
                    last_commit = time.monotonic()
                    self._commit(consumer)
            self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: confluent_kafka.Consumer) -> None:
        try:
            for each in consumer.commit(asynchronous=False) or ():
                if each.error is None and each.offset >= 0:
                    self.committed[each.partition].append(each.offset)
        except confluent_kafka.KafkaException as error:
            code = error.args[0].code()
            if code != confluent_kafka.KafkaError._NO_OFFSET and not error.args[0].retriable():
                self.errors.append(f"commit: {error}")

    def check(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        """After it has stopped: the laws."""
        assert not self.errors, self.errors[:5]
        for partition in range(self._partitions):
            with PartitionLog(bootstrap, TopicPartition(self._topic, partition), options=options) as log:
                found = [int(record.value or b"-1") for record in log.read()]
            assert self.acknowledged[partition] == self.sent[partition]
            assert found == list(range(self.sent[partition])), f"partition {partition} lost, doubled or reordered"
            assert self.reached[partition] == self.sent[partition], f"partition {partition} was not read whole"
            assert self.committed[partition] == sorted(self.committed[partition]), "committed offsets went back"


def wait_in_sync(
    bootstrap: str, expected: Mapping[str, Sequence[int]] | None = None, options: Mapping[str, str] | None = None
) -> None:
    """Until all replicas are in sync; `expected`: the brokers of all partitions of a topic."""
    deadline = time.monotonic() + SETTLE_S
    with Admin(bootstrap, timeout=30.0, options=options) as admin:
        while True:
            topics = admin.topics.list(internal=True)
            behind = [
                (topic.name, each)
                for topic in topics
                for each in topic.partitions
                if each.leader is None
                or set(each.isr) != set(each.replicas)
                or (expected and topic.name in expected and set(each.replicas) != set(expected[topic.name]))
            ]
            if not behind:
                return
            assert time.monotonic() < deadline, behind
            time.sleep(0.2)
