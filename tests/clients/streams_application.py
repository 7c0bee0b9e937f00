"""An application of Kafka Streams in Java (`java/`, Streams), its input, its output, and what that must be."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from clients.drivers.java import QUICK_START, class_path
from penstock.client.wire.admin import Admin
from waiting import wait_until

PARTITIONS = 3
WINDOW_MS = 10_000
START_MS = 1_700_000_000_000
# Kafka Streams starts a JVM, creates topics and rebalances, on a machine that does other things too.
PATIENCE_S = 400.0

PROPERTIES = {
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.assignment.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
STREAMS = {"group.protocol": "streams"}


class Sent(NamedTuple):
    topic: str
    key: str
    value: str
    timestamp_ms: int


def random_input(seed: int, count: int, start_ms: int = START_MS) -> list[Sent]:
    """Lines of words, and orders with payments of the same customers, in any order of their times, which are within a
    minute."""
    choose = random.Random(seed)
    words = [f"word{number}" for number in range(20)]
    found = []
    for number in range(count):
        at_ms = start_ms + choose.randrange(60_000)
        kind = choose.choice(["lines", "orders", "payments"])
        text = " ".join(choose.choices(words, k=5)) if kind == "lines" else f"{kind[0]}{number}"
        found.append(Sent(kind, f"customer{choose.randrange(30)}", text, at_ms))
    return found


def counted(sent: Iterable[Sent]) -> dict[str, str]:
    """How often each word occurs in each window, as the application names it."""
    found: Counter[str] = Counter()
    for each in sent:
        if each.topic == "lines":
            window_ms = each.timestamp_ms - each.timestamp_ms % WINDOW_MS
            found.update(f"{word}@{window_ms}" for word in each.value.split())
    return {key: str(count) for key, count in found.items()}


def joined(sent: Iterable[Sent]) -> Counter[tuple[str, str]]:
    """Each order with each payment of the same customer, at most a window apart."""
    everything = list(sent)
    return Counter(
        (order.key, f"{order.value}/{payment.value}")
        for order in everything
        if order.topic == "orders"
        for payment in everything
        if payment.topic == "payments" and payment.key == order.key
        if abs(payment.timestamp_ms - order.timestamp_ms) <= WINDOW_MS
    )


class Output:
    """What read-committed readers see of the application's output so far."""

    def __init__(self, bootstrap: str, application: str) -> None:
        self.counts: dict[str, str] = {}
        self.pairs: Counter[tuple[str, str]] = Counter()
        self._paid = f"{application}-paid"
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{application}-output", "enable.auto.commit": False}
            | {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 0}
        )
        self._consumer.assign(
            [
                TopicPartition(topic, index, OFFSET_BEGINNING)
                for topic in (self._paid, f"{application}-counts")
                for index in range(PARTITIONS)
            ]
        )

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> None:
        for message in self._consumer.consume(1000, timeout=0.5):
            error = message.error()
            if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue  # a broker that has not heard of a new topic yet
            assert error is None, error
            key, value = (message.key() or b"").decode(), (message.value() or b"").decode()
            if message.topic() == self._paid:
                self.pairs[key, value] += 1
            else:
                self.counts[key] = value

    def is_of(self, sent: list[Sent]) -> bool:
        self.read()
        return self.counts == counted(sent) and self.pairs == joined(sent)

    def difference(self, sent: list[Sent]) -> str:
        counts, pairs = counted(sent), joined(sent)
        wrong = {key: (self.counts.get(key), counts.get(key)) for key in counts.keys() | self.counts.keys()}
        wrong = {key: both for key, both in wrong.items() if both[0] != both[1]}
        return f"counts (got, expected): {wrong}; missing pairs: {pairs - self.pairs}; more: {self.pairs - pairs}"


class Instance:
    """A process of the application."""

    def __init__(self, bootstrap: str, application: str, directory: Path, settings: dict[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._errors_path = directory / "stderr"
        command = ["java", *QUICK_START, "-cp", class_path(), "penstock.tests.Streams", bootstrap, application]
        command += [f"{name}={value}" for name, value in {"state.dir": str(directory), **settings}.items()]
        with open(self._errors_path, "w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.states: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.states.append(line.split()[-1])

    @property
    def errors(self) -> str:
        return self._errors_path.read_text()

    def wait_running(self) -> None:
        def is_running() -> bool:
            assert self._process.poll() is None, f"it ended: {self.errors}"
            return self.states[-1:] == ["RUNNING"]

        wait_until(is_running, f"an instance that runs; {self.states}, {self.errors}", seconds=PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def close(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Application:
    def __init__(self, bootstrap: str, name: str, directory: Path, settings: dict[str, str]) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self._directory = directory
        self._settings = settings
        self.sent: list[Sent] = []
        self.instances: list[Instance] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        with Admin(bootstrap) as admin:
            for topic in ("lines", "orders", "payments", "counts", "paid"):
                admin.topics.create(f"{name}-{topic}", partitions=PARTITIONS)
        self.output = Output(bootstrap, name)

    def start(self) -> Instance:
        directory = self._directory / f"instance-{len(self.instances)}"
        instance = Instance(self.bootstrap, self.name, directory, self._settings)
        self.instances.append(instance)
        return instance

    def send(self, records: list[Sent]) -> None:
        for each in records:
            self._producer.produce(f"{self.name}-{each.topic}", each.value, each.key, timestamp=each.timestamp_ms)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0
        self.sent += records

    def wait_for_output(self) -> None:
        """Wait until the output is what a plain computation says."""
        until = time.monotonic() + PATIENCE_S
        while not self.output.is_of(self.sent):
            assert time.monotonic() < until, (
                self.output.difference(self.sent) + "\n" + "\n".join(each.errors for each in self.instances)
            )

    def close(self) -> None:
        for each in self.instances:
            each.close()
        self.output.close()
