"""A numbered stream of records, and what must be true of it afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from clients.librdkafka import close
from narrowing import present
from waiting import wait_until

# The position of a consumer must exist on every leader.
LOST_POSITION = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


@dataclass
class Writer:
    """Produces 0, 1, 2, ... until told to stop, and remembers what was acknowledged where."""

    bootstrap: str
    topic: str
    partitions: int
    settings: dict[str, object] = field(default_factory=dict)
    payload: bytes = b"x" * 200
    records_a_second: int | None = None  # as many as it can, if left out
    sent: int = 0
    # Number -> (partition, offset). librdkafka does not know the offset if a request got no answer, but a later one of
    # its sequence did, and says None.
    acknowledged: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    flush_seconds: float = 60
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the stream; every record sent has been acknowledged or has failed when this returns."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join(timeout=120)
        assert not self._thread.is_alive(), "the producer did not finish"

    def abandon(self) -> None:
        """Ends the stream, if it has not ended yet, and whatever waits for its acknowledgement."""
        self.flush_seconds = 0
        self._stop.set()

    def wait_for(self, acknowledged: int, timeout: float = 60) -> None:
        wait_until(
            lambda: len(self.acknowledged) >= acknowledged,
            lambda: f"{acknowledged} acknowledged, not {len(self.acknowledged)}; {self.failures[:3]}",
            timeout,
        )

    def wait_for_all_after(self, first: int, timeout: float = 90) -> None:
        """Until records from this number on, one for each partition, are sent and acknowledged."""
        deadline = time.monotonic() + timeout
        for number in range(first, first + self.partitions):
            while number not in self.acknowledged:
                assert time.monotonic() < deadline, (
                    f"record {number} is not acknowledged ({self.sent} sent, {len(self.acknowledged)} acknowledged); "
                    f"{self.failures[:3]}"
                )
                self._stop.wait(0.01)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 2,
                "batch.num.messages": 100,
                "queue.buffering.max.messages": 2000,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
                **self.settings,
            }
        )
        began = time.monotonic()
        while not self._stop.is_set():
            number = self.sent
            if self.records_a_second and number > (time.monotonic() - began) * self.records_a_second:
                producer.poll(0.005)
                continue
            try:
                producer.produce(
                    self.topic,
                    key=str(number),
                    value=b"%d:" % number + self.payload,
                    partition=number % self.partitions,
                    on_delivery=self._report(number),
                )
            except BufferError:
                producer.poll(0.05)
                continue
            self.sent += 1
            producer.poll(0)
        producer.flush(self.flush_seconds)
        producer.purge()

    def _report(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged[number] = (present(message.partition()), message.offset())
            else:
                self.failures.append(str(error))

        return report


def steady_writer(
    bootstrap: str, topic: str, partitions: int, login: Mapping[str, str], records_a_second: int = 500
) -> Writer:
    """One that loses nothing: of small records, and a request to a leader that is silent is given up soon."""
    return Writer(
        bootstrap,
        topic,
        partitions,
        {
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": 120_000,
            "request.timeout.ms": 3000,
            **login,
        },
        payload=b"x" * 20,
        records_a_second=records_a_second,
    )


@dataclass
class Reader:
    """Reads along until told to stop, and remembers what it saw where."""

    bootstrap: str
    topic: str
    partitions: int
    settings: dict[str, object] = field(default_factory=dict)
    seen: dict[tuple[int, int], int] = field(default_factory=dict)  # (partition, offset) -> number
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.abandon()
        assert self._thread is not None
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "the consumer did not finish"

    def abandon(self) -> None:
        self._stop.set()

    def check(self, found: dict[int, list[tuple[int, int]]]) -> None:
        """What it was given is what is there, from the first record on and without a hole."""
        assert not self.failures, self.failures[:3]
        assert self.seen, "the consumer has read nothing"
        for partition, records in found.items():
            offsets = [offset for where, offset in self.seen if where == partition]
            assert offsets == list(range(len(offsets))), f"partition {partition} was read with holes"
            stored = dict(records)
            other = {
                offset: self.seen[partition, offset]
                for offset in offsets
                if stored.get(offset) != self.seen[partition, offset]
            }
            assert not other, f"partition {partition}: read, and not there: {list(other.items())[:5]}"

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "along",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 100,
                "fetch.wait.max.ms": 50,
                **self.settings,
            }
        )
        try:
            consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])
            while not self._stop.is_set():
                for message in consumer.consume(1000, timeout=0.2):
                    error = message.error()
                    if error is None:
                        number = int(present(message.value()).split(b":", 1)[0])
                        self.seen[present(message.partition()), present(message.offset())] = number
                    elif error.code() in LOST_POSITION:
                        self.failures.append(str(error))
        finally:
            close(consumer)


def read_all(
    bootstrap: str,
    topic: str,
    partitions: int,
    timeout: float = 60,
    settings: Mapping[str, object] | None = None,
) -> dict[int, list[tuple[int, int]]]:
    """Every record as partition -> [(offset, number)], in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            **(settings or {}),
        }
    )
    try:
        ends = {}
        found: dict[int, list[tuple[int, int]]] = {}
        for partition in range(partitions):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            ends[partition] = high
            found[partition] = []
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        positions = dict.fromkeys(range(partitions), 0)
        deadline = time.monotonic() + timeout
        while any(positions[partition] < ends[partition] for partition in range(partitions)):
            assert time.monotonic() < deadline, f"read up to {positions} of {ends}"
            for message in consumer.consume(5000, timeout=0.5):
                assert message.error() is None, message.error()
                number = int(present(message.value()).split(b":", 1)[0])
                partition, offset = present(message.partition()), present(message.offset())
                found[partition].append((offset, number))
                positions[partition] = offset + 1
        return found
    finally:
        close(consumer)


def check(writer: Writer, found: dict[int, list[tuple[int, int]]], *, exactly_once: bool) -> None:
    """Nothing acknowledged is missing or elsewhere; with idempotence nothing is there twice or out of order."""
    at: dict[tuple[int, int | None], int] = {
        (partition, offset): number for partition, records in found.items() for offset, number in records
    }
    somewhere = {(partition, number) for (partition, _), number in at.items()}
    missing = {
        number: place
        for number, place in writer.acknowledged.items()
        if at.get(place) != number and (place[1] is not None or (place[0], number) not in somewhere)
    }
    assert not missing, (
        f"{len(missing)} acknowledged records are not where they were acknowledged: {list(missing.items())[:5]}"
    )
    for partition, records in found.items():
        assert [offset for offset, _ in records] == list(range(len(records))), (
            f"offsets of partition {partition} have holes"
        )
        if exactly_once:
            numbers = [number for _, number in records]
            assert len(numbers) == len(set(numbers)), f"partition {partition} has duplicates"
            assert numbers == sorted(numbers), f"partition {partition} is out of order"
