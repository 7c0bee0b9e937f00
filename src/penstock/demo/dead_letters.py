"""Makes poison records, collects dead letters and replays them.

Poison is a record that no pipeline can read. Here it is one that happens in practice: a new firmware writes with the
serializer of a schema registry, which puts five bytes before the JSON (a zero and a schema's number). The event is
complete, but it is not JSON.

A pipeline that cannot read a record writes it unchanged to its dead-letter topic, with the reason in a header, and
continues. The replay repairs each dead letter, by cutting the five bytes off, and sends it once more to the topic it
came from. (Where the fault was the pipeline's and not the record's, `penstock pipeline replay-dead-letters` sends dead
letters as they are.) Each one is replayed once, however often a replay is asked for: the demo remembers, by offset,
which dead letters it has read.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.demo.cluster import client_settings
from penstock.demo.ledger import EventSet, Output
from penstock.demo.workload import BY_NAME, DEAD_LETTERS, EventId

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

POISON_PREFIX = b"\x00\x00\x00\x00\x07"
POISON_DESCRIPTION = "five bytes of a schema registry before the JSON"
REPLAYED = "replayed"
REASON = "dead-letter.reason"
TOPIC = "dead-letter.topic"
_DELIVERY_S = 120

Headers = list[tuple[str, str | bytes | None]]


def poison(value: bytes) -> bytes:
    return POISON_PREFIX + value


def is_poison(value: bytes) -> bool:
    return value.startswith(POISON_PREFIX)


def repair(value: bytes) -> bytes:
    return value.removeprefix(POISON_PREFIX)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    event: EventId
    value: bytes


class DeadLetters:
    def __init__(self, bootstrap: str, not_replayed: EventSet) -> None:
        self._bootstrap = bootstrap
        self._not_replayed = not_replayed
        self._offsets = Output()
        self._lock = threading.Lock()
        self._waiting: list[DeadLetter] = []
        self._producer: Producer | None = None
        self.reasons: Counter[str] = Counter()
        self.replayed = 0

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._waiting)

    def write(self, message: Message) -> None:
        """What a pipeline does with a record that it cannot read, for a demo without pipelines."""
        headers: Headers = [(REASON, b"not JSON"), (TOPIC, (message.topic() or "").encode())]
        target = DEAD_LETTERS[BY_NAME[message.topic() or ""].pipeline]
        producer = self._open()
        producer.produce(target, message.value(), message.key(), headers=headers)
        producer.flush(_DELIVERY_S)

    def received(self, message: Message) -> None:
        """A record was read from a dead-letter topic."""
        if not self._offsets.is_new(message.topic() or "", message.partition() or 0, message.offset() or 0):
            return
        headers = _headers(message)
        value = repair(message.value() or b"")
        event = EventId(headers[TOPIC], (message.key() or b"").decode(), json.loads(value)["sequence"])
        with self._lock:
            self._waiting.append(DeadLetter(event, value))
        self._not_replayed.add(event)
        self.reasons[headers[REASON]] += 1

    def replay(self) -> int:
        """Replays all that wait now; returns how many. One that is not acknowledged waits again."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        producer = self._open()
        for letter in taken:
            producer.produce(
                letter.event.topic,
                letter.value,
                letter.event.key,
                headers=[(REPLAYED, b"1")],
                on_delivery=partial(self._delivered, letter),
            )
        producer.flush(_DELIVERY_S)
        return len(taken)

    def _delivered(self, letter: DeadLetter, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._not_replayed.discard(letter.event)
            self.replayed += 1
        else:
            with self._lock:
                self._waiting.append(letter)

    def _open(self) -> Producer:
        from confluent_kafka import Producer

        with self._lock:
            if self._producer is None:
                delivery_ms = _DELIVERY_S * 1000
                self._producer = Producer(
                    client_settings(self._bootstrap, enable_idempotence=True, delivery_timeout_ms=delivery_ms)
                )
            return self._producer


def _headers(message: Message) -> dict[str, str]:
    given: Any = message.headers() or []
    return {name: (value or b"").decode(errors="replace") for name, value in given}
