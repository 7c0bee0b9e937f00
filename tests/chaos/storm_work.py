"""What clients do while a storm rages, and what they were promised.

One idempotent producer writes numbered records and a consumer reads along; what either got acknowledged is a promise
(the simulator's, with its laws). A transactional producer writes each of its transactions to all partitions of a topic
and then commits or aborts it; sometimes it never learns the outcome.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from penstock.simulator.stories.cluster_checkers import Promises

PATIENCE_S = 120.0
RESTLESS = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


class Work:
    """A thread that runs until `stop`, and whose failure is the test's."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise AssertionError(f"{type(self).__name__} failed: {self._error}") from self._error

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - `check` raises it where it is seen
            self._error = error

    def work(self) -> None:
        raise NotImplementedError


class Writing(Work):
    """Idempotent, acks=all. Values are `writer:NUMBER:...`, numbered by partition."""

    def __init__(self, bootstrap: str, topic: str, promises: Sequence[Promises], records_a_second: int) -> None:
        super().__init__()
        self._topic = topic
        self._promises = promises
        self._pause_s = len(promises) / records_a_second
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "request.timeout.ms": 3000,
                "retry.backoff.max.ms": 200,
                **RESTLESS,
            }
        )
        self.acknowledged = 0
        self.failures: list[str] = []

    def work(self) -> None:
        number = 0
        while not self.stopping.wait(self._pause_s):
            for promises in self._promises:
                value = b"writer:%d:" % number + b"x" * 200
                promises.sent.add(value)
                while True:
                    try:
                        self._producer.produce(
                            self._topic, value, partition=promises.index, on_delivery=self._delivered(promises)
                        )
                        break
                    except BufferError:
                        self._producer.poll(0.05)
            self._producer.poll(0)
            number += 1
        left = self._producer.flush(PATIENCE_S)
        assert not left and not self.failures, f"{left} records are not acknowledged; {self.failures[:3]}"

    def _delivered(self, promises: Promises) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(error.str())
                return
            self.acknowledged += 1
            offset, value = message.offset(), message.value()
            if offset is not None and offset >= 0 and value is not None:  # unknown if an answer was lost
                promises.tell(offset, value)

        return report


class Reading(Work):
    """From the beginning, along with the writer: what was read once stays readable."""

    def __init__(self, bootstrap: str, topic: str, promises: Sequence[Promises]) -> None:
        super().__init__()
        self._promises = promises
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "along",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                **RESTLESS,
            }
        )
        self._consumer.assign([TopicPartition(topic, each.index, 0) for each in promises])
        self._next = [0] * len(promises)
        self.read = 0

    def work(self) -> None:
        try:
            while not self.stopping.is_set():
                for message in self._consumer.consume(500, 0.2):
                    error = message.error()
                    if error is None:
                        self._took(message)
                    else:
                        assert error.code() != KafkaError._AUTO_OFFSET_RESET, error.str()
        finally:
            self._consumer.close()

    def _took(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        assert offset == self._next[partition], f"partition {partition}: {offset} after {self._next[partition] - 1}"
        self._next[partition] = offset + 1
        self._promises[partition].tell(offset, value)
        self.read += 1


class Transacting(Work):
    """Each transaction writes its number to every partition. Outcomes are those the producer got."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, seed: int) -> None:
        super().__init__()
        self._topic = topic
        self._partitions = partitions
        self.name = name
        self._chance = random.Random(seed)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 0,
            "retry.backoff.max.ms": 200,
            **RESTLESS,
        }
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.unknown: set[int] = set()
        self.errors: Counter[str] = Counter()

    def work(self) -> None:
        number = 0
        while not self.stopping.is_set():
            try:
                producer = Producer(self._settings)
                producer.init_transactions(PATIENCE_S)
                while not self.stopping.wait(0.02):
                    self._transact(producer, number)
                    number += 1
            except KafkaException as error:
                # Whatever it was, another producer goes on under the same name, which fences this one.
                self.errors[error.args[0].name()] += 1
                number += 1

    def _transact(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for partition in range(self._partitions):
            producer.produce(self._topic, b"%s:%d" % (self.name.encode(), number), partition=partition)
        if self._chance.random() < 0.3:
            self.aborted.add(number)  # whatever comes of the call: no commit was asked for
            producer.flush(self._chance.choice((0.0, 5.0)))
            producer.abort_transaction(PATIENCE_S)
        else:
            self.unknown.add(number)
            producer.commit_transaction(PATIENCE_S)
            self.committed.add(number)
            self.unknown.discard(number)
