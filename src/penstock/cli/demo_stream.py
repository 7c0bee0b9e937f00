"""The demo's stream of events: one thread writes, one reads, and every event carries its number.

The reader ticks off numbers. It is satisfied when it has seen each acknowledged one, none twice, and in ascending order
within a partition: nothing is missing, doubled or out of place.
"""

from __future__ import annotations

import json
import random
import threading
import time
from typing import TYPE_CHECKING

from penstock.cli.records import librdkafka_settings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_CITIES = ("Lisbon", "Oslo", "Nairobi", "Quito", "Kyoto", "Hobart", "Tallinn", "Accra")
_ACTIONS = ("order", "payment", "shipment", "return")
_IDLE_SECONDS = 30.0


class Ledger:
    """Which numbers were seen, and the last one of each partition."""

    def __init__(self, partitions: int) -> None:
        self._seen = bytearray()
        self._last = [-1] * partitions
        self.count = 0
        self.doubled = 0
        self.misplaced = 0

    def tick(self, partition: int, number: int) -> None:
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 1 - len(self._seen)))
        self.doubled += self._seen[number]
        self._seen[number] = 1
        self.misplaced += number < self._last[partition]
        self._last[partition] = number
        self.count += 1

    def has_all(self, count: int) -> bool:
        return len(self._seen) == count and all(self._seen)


class EventStream:
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._ledger = Ledger(partitions)
        self._failures: list[str] = []
        self._writing_ended = threading.Event()
        self._reading_ended = threading.Event()
        self._started = 0.0
        self.acknowledged = 0
        self.bytes_written = 0
        self.write_seconds = 1e-9

    @property
    def read(self) -> int:
        return self._ledger.count

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
        if self._ledger.doubled:
            return f"{self._ledger.doubled} events were read more than once"
        if self._ledger.misplaced:
            return f"{self._ledger.misplaced} events were read out of order"
        if not self._ledger.has_all(self.acknowledged):
            return f"{self.read} events were read, which are not the {self.acknowledged} that were acknowledged"
        return None

    def _write(self, duration: float) -> None:
        from confluent_kafka import KafkaException, Producer

        settings = librdkafka_settings(
            self._bootstrap,
            None,
            enable_idempotence=True,
            linger_ms=5,
            delivery_report_only_error=True,
        )
        settings["on_delivery"] = self._failed
        try:
            producer = Producer(settings)
            events = _events()
            number = 0
            while self.elapsed < duration and not self._failures:
                try:
                    for key, value in events:
                        producer.produce(self._topic, b"%d %s" % (number, value), key)
                        number += 1
                        self.bytes_written += len(value)
                except BufferError:
                    producer.poll(0.01)
                producer.poll(0)
                self.acknowledged = number - len(producer)
            # Only failures are reported, so what is neither waiting nor reported is acknowledged.
            self.acknowledged = number - producer.flush(_IDLE_SECONDS)
        except KafkaException as error:
            self._failures.append(error.args[0].str())
        finally:
            self.write_seconds = max(self.elapsed, 1e-9)
            self._writing_ended.set()

    def _failed(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error.str())

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
                            value = message.value() or b""
                            self._ledger.tick(message.partition() or 0, int(value[: value.index(b" ")]))
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
    for _ in range(100):
        customer = f"customer-{draw.randrange(200)}"
        event = {
            "customer": customer,
            "action": draw.choice(_ACTIONS),
            "city": draw.choice(_CITIES),
            "amount": round(draw.uniform(1, 500), 2),
        }
        events.append((customer.encode(), json.dumps(event).encode()))
    return events
