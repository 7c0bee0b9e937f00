"""Dead letters of the demo: those that lie there, and their way back.

A pipeline that cannot read a record writes it to its dead-letter topic, as it came, with the reason in a header, and
goes on. To replay is to send each of them once more to the topic it came from, after what was wrong with it is put
right; here that is five bytes too many, which are cut off. (Where the fault was the pipeline's and not the record's,
`penstock pipeline replay-dead-letters` sends letters as they are.) Each letter is sent again once, however often it is
asked for: the demo notes which letters it has taken, by their place in the topic.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.demo.clients import settings
from penstock.demo.ledger import EventId, Output, Sequences
from penstock.demo.poison import repair
from penstock.demo.streams import BY_TOPIC, DEAD_LETTERS

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

REPLAYED = "replayed"
REASON = "dead-letter.reason"
TOPIC = "dead-letter.topic"
_DELIVERY_SECONDS = 120

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Letter:
    which: EventId
    value: bytes


class Letters:
    def __init__(self, bootstrap: str, lying: Sequences) -> None:
        self._bootstrap = bootstrap
        self._lying = lying
        self._places = Output()
        self._lock = threading.Lock()
        self._waiting: list[Letter] = []
        self._producer: Producer | None = None
        self.reasons: Counter[str] = Counter()
        self.count = 0
        self.replayed = 0

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._waiting)

    def put_aside(self, message: Message) -> None:
        """What a pipeline does with a record that it cannot read, for those who run none."""
        headers: Headers = [(REASON, b"not JSON"), (TOPIC, (message.topic() or "").encode())]
        target = DEAD_LETTERS[BY_TOPIC[message.topic() or ""].pipeline]
        producer = self._open()
        producer.produce(target, message.value(), message.key(), headers=headers)
        producer.flush(_DELIVERY_SECONDS)

    def arrived(self, message: Message) -> None:
        """One was read from a dead-letter topic."""
        if not self._places.is_new(message.topic() or "", message.partition() or 0, message.offset() or 0):
            return
        headers = _headers(message)
        value = repair(message.value() or b"")
        which = (headers[TOPIC], (message.key() or b"").decode(), json.loads(value)["sequence"])
        with self._lock:
            self._waiting.append(Letter(which, value))
        self._lying.add(*which)
        self.reasons[headers[REASON]] += 1
        self.count += 1

    def replay(self) -> int:
        """All that lie there now, each once; how many. One that is not acknowledged is still there afterwards."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        producer = self._open()
        for letter in taken:
            topic, key, _ = letter.which
            producer.produce(
                topic, letter.value, key, headers=[(REPLAYED, b"1")], on_delivery=partial(self._delivered, letter)
            )
        producer.flush(_DELIVERY_SECONDS)
        return len(taken)

    def _delivered(self, letter: Letter, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._lying.discard(*letter.which)
            self.replayed += 1
        else:
            with self._lock:
                self._waiting.append(letter)

    def _open(self) -> Producer:
        from confluent_kafka import Producer

        with self._lock:
            if self._producer is None:
                self._producer = Producer(
                    settings(self._bootstrap, enable_idempotence=True, delivery_timeout_ms=_DELIVERY_SECONDS * 1000)
                )
            return self._producer


def _headers(message: Message) -> dict[str, str]:
    given: Any = message.headers() or []
    return {name: (value or b"").decode(errors="replace") for name, value in given}
