"""Dead letters: records that cannot be deserialized are sent to a dead-letter topic.

    Consumer(..., on_error=DeadLetter("orders.dead"))

A dead letter is the original record, with key, value, headers and timestamp, plus four headers that state the reason
and the record's origin. The consumer does not commit offsets after the record until the dead letter is acknowledged, so
no record is lost between the two topics; a crash in between sends it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from penstock.client.errors import ClientError, Undeserializable
from penstock.client.librdkafka.delivery import Delivery
from penstock.client.librdkafka.producer import Producer
from penstock.client.librdkafka.properties import BOTH
from penstock.client.librdkafka.record import headers_of

REASON = "dead-letter.reason"
"""Header: the deserializer's error message."""
TOPIC = "dead-letter.topic"
"""Header: the topic of the record, as text, like the next two."""
PARTITION = "dead-letter.partition"
OFFSET = "dead-letter.offset"


@dataclass(frozen=True)
class DeadLetter:
    """`producer`: a user's own producer of bytes; by default one with the consumer's connection settings."""

    topic: str
    producer: Producer[bytes, bytes] | None = None


@dataclass
class _Letter:
    message: Message
    reason: Undeserializable
    delivery: Delivery | None = None


class DeadLetterOffice:
    def __init__(self, policy: DeadLetter, bootstrap: str, settings: Mapping[str, Any]) -> None:
        self._topic = policy.topic
        self._own = policy.producer is None
        self._producer = policy.producer or Producer(
            bootstrap, settings={name: value for name, value in settings.items() if name in BOTH}
        )
        self._pending: deque[_Letter] = deque()
        self.count = 0

    def take(self, message: Message, reason: Undeserializable) -> None:
        letter = _Letter(message, reason)
        self._pending.append(letter)
        self.count += 1
        letter.delivery = self._send(letter)

    def settle(self) -> None:
        """Wait until all letters are acknowledged. A failed one is raised, and sent again by the next call."""
        while self._pending:
            letter = self._pending[0]
            if letter.delivery is None:
                letter.delivery = self._send(letter)
            try:
                letter.delivery.result()
            except ClientError as error:
                letter.delivery = None
                error.add_note(f"dead letters go to {self._topic!r}; offsets behind one are committed once it is there")
                raise
            self._pending.popleft()

    def close(self) -> None:
        if self._own:
            self._producer.close()

    def _send(self, letter: _Letter) -> Delivery:
        message, reason = letter.message, letter.reason
        headers = [
            *headers_of(message),
            (REASON, str(reason.__cause__ or reason).encode()),
            (TOPIC, reason.topic.encode()),
            (PARTITION, str(reason.partition).encode()),
            (OFFSET, str(reason.offset).encode()),
        ]
        kind, timestamp = message.timestamp()
        return self._producer.send(
            self._topic,
            message.value(),
            key=message.key(),
            timestamp=timestamp if kind else None,
            headers=headers,
        )
