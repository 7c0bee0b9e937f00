"""The demo's stream of events: one thread writes, one reads, and both keep a ledger.

A ledger has, for each partition, the event's number at its offset: the writer's from the acknowledgements, the reader's
from what arrived. Equal ledgers mean that nothing is missing, doubled or out of place.
"""

from __future__ import annotations

import json
import random
import threading
import time
from array import array
from typing import TYPE_CHECKING

from penstock.cli.records import librdkafka_settings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_CITIES = ("Lisbon", "Oslo", "Nairobi", "Quito", "Kyoto", "Hobart", "Tallinn", "Accra")
_ACTIONS = ("order", "payment", "shipment", "return")
_UNSEEN = -1
_IDLE_SECONDS = 30.0


class Ledger:
    """Event numbers by partition and offset."""

    def __init__(self, partitions: int) -> None:
        self.numbers = [array("q") for _ in range(partitions)]
        self.doubled = 0

    def enter(self, partition: int, offset: int, number: int) -> None:
        numbers = self.numbers[partition]
        if offset >= len(numbers):
            numbers.extend([_UNSEEN] * (offset + 1 - len(numbers)))
        elif numbers[offset] != _UNSEEN:
            self.doubled += 1
        numbers[offset] = number


class EventStream:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._written = Ledger(partitions)
        self._seen = Ledger(partitions)
        self._failures: list[str] = []
        self._writing_ended = threading.Event()
        self._reading_ended = threading.Event()
        self._started = 0.0
        self.acknowledged = 0
        self.read = 0
        self.bytes_written = 0
        self.write_seconds = 1e-9

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def start(self, duration: float) -> None:
        self._started = time.monotonic()
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        threading.Thread(target=self._write, args=(duration,), name="writer", daemon=True).start()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether writing and reading are over."""
        return self._reading_ended.wait(seconds)

    def problem(self) -> str | None:
        """What went wrong, if anything did."""
        if self._failures:
            return self._failures[0]
        if not self.acknowledged:
            return "nothing was acknowledged"
        if self._seen.doubled:
            return f"{self._seen.doubled} events were read more than once"
        for partition, (written, seen) in enumerate(zip(self._written.numbers, self._seen.numbers, strict=True)):
            if written != seen:
                return f"partition {partition}: what was read is not what was acknowledged"
        return None

    def _write(self, duration: float) -> None:
        from confluent_kafka import KafkaException, Producer

        try:
            producer = Producer(
                librdkafka_settings(self._bootstrap, None, enable_idempotence=True, linger_ms=5, compression_type="lz4")
            )
            events = _events()
            number = 0
            while self.elapsed < duration and not self._failures:
                key, value = events[number % len(events)]
                try:
                    producer.produce(self._topic, b"%d %s" % (number, value), key, on_delivery=self._delivered)
                    number += 1
                    if not number % 100:
                        producer.poll(0)
                except BufferError:
                    producer.poll(0.05)
            producer.flush()
        except KafkaException as error:
            self._failures.append(error.args[0].str())
        finally:
            self.write_seconds = max(self.elapsed, 1e-9)
            self._writing_ended.set()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error.str())
            return
        value = message.value() or b""
        self._written.enter(message.partition() or 0, message.offset() or 0, int(value.split(b" ", 1)[0]))
        self.bytes_written += len(value)
        self.acknowledged += 1

    def _read(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

        settings = librdkafka_settings(
            self._bootstrap, None, group_id="penstock-demo", enable_auto_commit=False, fetch_queue_backoff_ms=0
        )
        try:
            consumer = Consumer(settings)
            try:
                consumer.assign(
                    [TopicPartition(self._topic, index, OFFSET_BEGINNING) for index in range(self._partitions)]
                )
                last = time.monotonic()
                while not self._writing_ended.is_set() or self.read < self.acknowledged:
                    for message in consumer.consume(10_000, 0.1):
                        if message.error() is None:
                            number = int((message.value() or b"").split(b" ", 1)[0])
                            self._seen.enter(message.partition() or 0, message.offset() or 0, number)
                            self.read += 1
                            last = time.monotonic()
                    if self._writing_ended.is_set() and time.monotonic() - last > _IDLE_SECONDS:
                        self._failures.append(f"only {self.read} of {self.acknowledged} events arrived")
                        break
            finally:
                consumer.close()
        except KafkaException as error:
            self._failures.append(error.args[0].str())
        finally:
            self._reading_ended.set()


def _events() -> list[tuple[bytes, bytes]]:
    """A repeating story: keys and JSON values."""
    draw = random.Random(7)
    events = []
    for _ in range(1000):
        customer = f"customer-{draw.randrange(200)}"
        event = {
            "customer": customer,
            "action": draw.choice(_ACTIONS),
            "city": draw.choice(_CITIES),
            "amount": round(draw.uniform(1, 500), 2),
        }
        events.append((customer.encode(), json.dumps(event).encode()))
    return events
