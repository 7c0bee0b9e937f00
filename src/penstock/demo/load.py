"""The producer: events at a steady rate, with `acks=all` and idempotent, so that each is there once however often it
was sent. An event counts from its acknowledgement on; what was not acknowledged was not promised."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.demo.clients import settings
from penstock.demo.ledger import EventId, Sequences
from penstock.demo.poison import spoil
from penstock.demo.story import story

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

# Longer than anybody looks at a dead broker.
DELIVERY_SECONDS = 600
MARK_EVERY = 19  # not in step with the story, whose turns are ten: events of all topics are marked
_MARKS_MAX = 5000


class Load:
    def __init__(self, bootstrap: str, rate: float, acknowledged: Sequences) -> None:
        self._bootstrap = bootstrap
        self._rate = rate
        self._acknowledged = acknowledged
        self._stop = threading.Event()
        self._to_spoil = 0
        self._lock = threading.Lock()
        self.sent = 0
        self.spoilt = 0
        self.refused = 0
        self.marks: dict[EventId, float] = {}
        """When some of the events were sent, for those who see them come out."""

    def stop(self) -> None:
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def poison(self, count: int) -> None:
        """The next so many events."""
        with self._lock:
            self._to_spoil += count

    def run(self) -> None:
        """Until stopped; then until every event is acknowledged or refused."""
        from confluent_kafka import Producer

        producer = Producer(
            settings(
                self._bootstrap,
                enable_idempotence=True,
                acks="all",
                linger_ms=5,
                delivery_timeout_ms=DELIVERY_SECONDS * 1000,
            )
        )
        started = time.monotonic()
        for event in story(time.time_ns() // 1_000_000, self._rate):
            while (early := started + self.sent / self._rate - time.monotonic()) > 0 and not self._stop.is_set():
                producer.poll(min(early, 0.1))
            if self._stop.is_set():
                break
            value = spoil(event.value) if self._shall_spoil() else event.value
            which = (event.topic, event.key, event.sequence)
            self._send(producer, which, value)
        producer.flush(DELIVERY_SECONDS)

    def _send(self, producer: Producer, which: EventId, value: bytes) -> None:
        topic, key, _ = which
        if self.sent % MARK_EVERY == 0:
            if len(self.marks) >= _MARKS_MAX:
                self.marks.clear()  # nobody has asked for them in a long time
            self.marks[which] = time.monotonic()
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=partial(self._delivered, which))
                break
            except BufferError:  # brokers are away, and the queue is full
                producer.poll(0.1)
        self.sent += 1

    def _shall_spoil(self) -> bool:
        with self._lock:
            if not self._to_spoil:
                return False
            self._to_spoil -= 1
        self.spoilt += 1
        return True

    def _delivered(self, which: EventId, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged.add(*which)
        else:
            self.refused += 1
