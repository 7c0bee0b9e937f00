"""The demo's Kafka clients: a producer, consumer groups, and a consumer of everything that the pipelines write.

The producer writes events at a steady rate, with `acks=all` and idempotent, so each is stored once however often it was
sent. An event counts from its acknowledgement on; what was not acknowledged was not promised.

A group reads its topics as any application would: as members that commit as they go. The consumer of the pipelines'
output starts at the beginning and reads committed records only.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.demo.cluster import ClusterObserver, client_settings
from penstock.demo.dead_letters import REPLAYED, DeadLetters, is_poison, poison, repair
from penstock.demo.ledger import EventSet, Ledger
from penstock.demo.reports import Reports
from penstock.demo.workload import (
    BY_OUTPUT,
    DEAD_LETTERS,
    EVENT_TOPICS,
    GROUPS,
    PARTITIONS,
    REPORTS,
    EventId,
    demo_events,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

LATENCY_S = 10.0
BATCHES_S = 30.0
"""The latencies of pipelines cover a longer time, because pipelines work in batches."""
DELIVERY_S = 600  # longer than a broker stays dead in any demo
SAMPLE_EVERY = 19  # no multiple of the ten turns of the workload, so that events of all topics are sampled
_SAMPLES_MAX = 5000
_BATCH = 1000
_WAIT_S = 0.1


class Latencies:
    """The latencies of the last seconds. One thread adds, another reads."""

    def __init__(self, seconds: float = LATENCY_S, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._last: deque[tuple[float, float]] = deque(maxlen=20_000)

    def add(self, milliseconds: float) -> None:
        self._last.append((self._now(), milliseconds))

    def percentiles(self, *wanted: float) -> list[float] | None:
        """None if there were none."""
        since = self._now() - self._seconds
        recent = sorted(each for at, each in list(self._last) if at >= since)
        return [recent[min(len(recent) - 1, int(len(recent) * part))] for part in wanted] if recent else None


class EventProducer:
    def __init__(self, bootstrap: str, rate: float, acknowledged: EventSet) -> None:
        self._bootstrap = bootstrap
        self._rate = rate
        self._acknowledged = acknowledged
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._poison_next = 0
        self.sent = 0
        self.poisoned = 0
        self.sent_at: dict[EventId, float] = {}
        """When some of the events were sent, to measure how long the pipelines take."""

    def stop(self) -> None:
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def poison(self, count: int) -> None:
        """Makes the next `count` events poison."""
        with self._lock:
            self._poison_next += count

    def run(self) -> None:
        """Runs until stopped; then until every event is acknowledged or has failed."""
        from confluent_kafka import Producer

        producer = Producer(
            client_settings(
                self._bootstrap,
                enable_idempotence=True,
                acks="all",
                linger_ms=5,
                delivery_timeout_ms=DELIVERY_S * 1000,
            )
        )
        started = time.monotonic()
        for event, value in demo_events(time.time_ns() // 1_000_000, self._rate):
            while (early := started + self.sent / self._rate - time.monotonic()) > 0 and not self._stop.is_set():
                producer.poll(min(early, 0.1))
            if self._stop.is_set():
                break
            self._send(producer, event, poison(value) if self._is_to_poison() else value)
        producer.flush(DELIVERY_S)

    def _send(self, producer: Producer, event: EventId, value: bytes) -> None:
        if self.sent % SAMPLE_EVERY == 0:
            if len(self.sent_at) >= _SAMPLES_MAX:
                self.sent_at.clear()  # no pipeline has read them for a long time
            self.sent_at[event] = time.monotonic()
        while True:
            try:
                producer.produce(event.topic, value, event.key, on_delivery=partial(self._delivered, event))
                break
            except BufferError:  # brokers are down, and the queue is full
                producer.poll(0.1)
        self.sent += 1

    def _is_to_poison(self) -> bool:
        with self._lock:
            if not self._poison_next:
                return False
            self._poison_next -= 1
        self.poisoned += 1
        return True

    def _delivered(self, event: EventId, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged.add(event)


class GroupConsumer:
    def __init__(self, bootstrap: str, group: str, ledger: Ledger, dead_letters: DeadLetters | None) -> None:
        """With `dead_letters`, it writes undecodable records there: a demo without pipelines has no other reader for
        that."""
        self._bootstrap = bootstrap
        self._group = group
        self._ledger = ledger
        self._dead_letters = dead_letters
        self.latencies = Latencies()
        self.read = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            client_settings(
                self._bootstrap,
                group_id=self._group,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=1000,
                fetch_wait_max_ms=100,
            )
        )
        consumer.subscribe([topic.name for topic in EVENT_TOPICS if topic.group == self._group])
        _consume(consumer, self._take, self.stopping)

    def _take(self, message: Message) -> None:
        topic, partition, offset = _position(message)
        if not self._ledger.topics.is_new(topic, partition, offset):
            return
        value = message.value() or b""
        if REPLAYED not in dict(message.headers() or ()):
            key, sequence = (message.key() or b"").decode(), json.loads(repair(value))["sequence"]
            self._ledger.topics.see(EventId(topic, key, sequence))
        if self._dead_letters is not None and is_poison(value):
            self._dead_letters.write(message)
        self.latencies.add(time.time() * 1000 - message.timestamp()[1])
        self.read += 1


class ResultsConsumer:
    def __init__(
        self,
        bootstrap: str,
        ledger: Ledger,
        dead_letters: DeadLetters,
        reports: Reports,
        sent_at: dict[EventId, float],
    ) -> None:
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._dead_letters = dead_letters
        self._reports = reports
        self._sent_at = sent_at
        self.latencies = {name: Latencies(BATCHES_S) for name in ledger.outputs}
        self.read = dict.fromkeys(ledger.outputs, 0)
        self.stopping = threading.Event()

    def run(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            client_settings(
                self._bootstrap,
                group_id="penstock-demo-results",  # never joined
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_wait_max_ms=100,
            )
        )
        topics = (*BY_OUTPUT, *REPORTS.values(), *DEAD_LETTERS.values())
        consumer.assign(
            [TopicPartition(topic, index, OFFSET_BEGINNING) for topic in topics for index in range(PARTITIONS)]
        )
        _consume(consumer, self._take, self.stopping)

    def _take(self, message: Message) -> None:
        topic = message.topic() or ""
        if topic in BY_OUTPUT:
            self._forwarded(topic, message)
        elif topic in DEAD_LETTERS.values():
            self._dead_letters.received(message)
        else:
            self._reports.report(topic, json.loads(message.value() or b"{}"))

    def _forwarded(self, output_topic: str, message: Message) -> None:
        topic = BY_OUTPUT[output_topic]
        output = self._ledger.outputs[topic.pipeline]
        if not output.is_new(*_position(message)):
            return
        row = json.loads(message.value() or b"{}")
        event = EventId(topic.name, row[topic.key], row["sequence"])
        output.see(event)
        self._reports.event(topic, row)
        self.read[topic.pipeline] += 1
        sent = self._sent_at.pop(event, None)
        if sent is not None:
            self.latencies[topic.pipeline].add((time.monotonic() - sent) * 1000)


class Clients:
    """All clients, and the observer of the cluster."""

    def __init__(
        self,
        bootstrap: str,
        broker_ids: Sequence[int],
        rate: float,
        ledger: Ledger,
        reports: Reports,
        *,
        groups_write_dead_letters: bool,
    ) -> None:
        """`groups_write_dead_letters`: whether groups do, because there are no pipelines that do."""
        self.dead_letters = DeadLetters(bootstrap, ledger.dead_letters)
        self.producer = EventProducer(bootstrap, rate, ledger.acknowledged)
        written = self.dead_letters if groups_write_dead_letters else None
        self.groups = {name: GroupConsumer(bootstrap, name, ledger, written) for name in GROUPS}
        self.results = ResultsConsumer(bootstrap, ledger, self.dead_letters, reports, self.producer.sent_at)
        self.observer = ClusterObserver(bootstrap, broker_ids)

    def threads(self) -> dict[str, Callable[[], None]]:
        """The functions that their threads run, by name."""
        return {
            **{f"group {name}": group.run for name, group in self.groups.items()},
            "results": self.results.run,
            "observer": self.observer.run,
            "producer": self.producer.run,
        }

    def stop(self) -> None:
        self.producer.stop()
        self.results.stopping.set()
        self.observer.stopping.set()
        for group in self.groups.values():
            group.stopping.set()


def _consume(consumer: Consumer, take: Callable[[Message], None], stopping: threading.Event) -> None:
    try:
        while not stopping.is_set():
            for message in consumer.consume(_BATCH, _WAIT_S):
                if message.error() is None:
                    take(message)
    finally:
        consumer.close()


def _position(message: Message) -> tuple[str, int, int]:
    return message.topic() or "", message.partition() or 0, message.offset() or 0
