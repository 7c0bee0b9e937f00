"""Tracks the messages between librdkafka and the user, and the positions that may be committed.

Messages are taken from librdkafka many at a time and returned to the user one by one, or a batch at a time. So there
are three kinds: unread (still here), handed out (the user is processing them) and done (the user asked for more). A
position is the end of a partition's done and handed-out records; the offset stored for the next commit is never beyond
it:

- librdkafka's own position is after the last message it returned, so the first unread message of a partition, if there
  is one, corrects it; so does a seek, until a message from the new position has arrived;
- offsets are stored when the user asks for more, when a partition is revoked, and at the end. If the end is an
  exception, the records handed out last are not done, and the next reader reads them again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Place

from penstock.client.errors import ClientError
from penstock.client.librdkafka.library import client_error
from penstock.model.ids import TopicPartition

# The longest time until a signal is handled, and that closing waits.
_WAIT_S = 0.5
# While the user is slow to take unread messages, poll this often to stay in the group.
_KEEP_ALIVE_S = 1.0
_NO_ERRORS = frozenset({KafkaError._PARTITION_EOF})


class Reading:
    def __init__(self, client: Any, exists: Callable[[str], bool], *, in_group: bool = True) -> None:
        self._client = client
        # librdkafka looks for the coordinator of a group even if it reads without one.
        self._no_errors = _NO_ERRORS if in_group else _NO_ERRORS | {KafkaError.GROUP_AUTHORIZATION_FAILED}
        self._exists = exists
        self.unread: deque[Message] = deque()
        self._handed: Sequence[Message] = ()
        self._sought: dict[TopicPartition, int] = {}
        self._filled_at = 0.0
        self.interrupted = False
        """Whether the records handed out last must be read again."""

    def fill(self, count: int, timeout: float | None) -> None:
        """Wait for a message, then take up to `count` that are available. Rebalances happen in here."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._filled_at = time.monotonic()
        messages = self._client.consume(count, 0)
        while not messages:
            wait = _WAIT_S if deadline is None else min(deadline - time.monotonic(), _WAIT_S)
            if wait <= 0:
                break
            messages = self._client.consume(1, wait)
            if messages and count > 1:
                messages += self._client.consume(count - 1, 0)
        failed = self._client_errors(messages) if any(map(Message.error, messages)) else None
        self.unread.extend(messages if failed is None else [each for each in messages if each.error() is None])
        if self._sought:
            for message in messages:
                self._sought.pop(place_of(message), None)
        for error in failed or ():
            raise error

    def _client_errors(self, messages: Iterable[Message]) -> list[ClientError]:
        found = []
        for message in messages:
            error = message.error()
            if error is None or error.code() in self._no_errors:
                continue
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and self._exists(str(message.topic())):
                continue  # not known to every broker yet
            found.append(client_error(error, str(message.topic() or "consumer")))
        return found

    def keep_alive_due(self) -> bool:
        return time.monotonic() - self._filled_at > _KEEP_ALIVE_S

    def take(self, count: int) -> list[Message]:
        if count >= len(self.unread):
            messages = list(self.unread)
            self.unread.clear()
            return messages
        return [self.unread.popleft() for _ in range(count)]

    def put_back(self, messages: Sequence[Message]) -> None:
        self.unread.extendleft(reversed(messages))

    def hand_out(self, messages: Sequence[Message]) -> None:
        self._handed = messages

    def has_done(self) -> bool:
        return bool(self._handed)

    def done(self) -> None:
        """Mark the records that were handed out as done."""
        self._handed = ()

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each assigned partition whose position is known."""
        found = {
            TopicPartition(each.topic, each.partition): each.offset
            for each in self._client.position(self._client.assignment())
        }
        found.update({place: offset for place, offset in self._sought.items() if place in found})
        again = [*(self._handed if self.interrupted else ()), *self.unread]
        found.update({place_of(message): int(message.offset() or 0) for message in reversed(again)})
        return {place: offset for place, offset in found.items() if offset >= 0}

    def sought(self, place: TopicPartition, offset: int) -> None:
        self.drop({place})
        self._sought[place] = offset

    def drop(self, places: set[TopicPartition]) -> dict[TopicPartition, int]:
        """Drop the unread messages of some partitions; return the offsets where they began."""
        first: dict[TopicPartition, int] = {}
        kept: deque[Message] = deque()
        for message in self.unread:
            place = place_of(message)
            if place in places:
                first.setdefault(place, int(message.offset() or 0))
            else:
                kept.append(message)
        self.unread = kept
        return first

    def forget(self, places: set[TopicPartition]) -> None:
        """Drop all state of partitions that now belong to other members."""
        self.drop(places)
        for place in places:
            self._sought.pop(place, None)
        self._handed = [message for message in self._handed if place_of(message) not in places]


def place_of(message: Message) -> TopicPartition:
    return TopicPartition(str(message.topic()), int(message.partition() or 0))


def to_places(offsets: dict[TopicPartition, int]) -> list[Place]:
    return [Place(place.topic, place.partition, offset) for place, offset in offsets.items()]


def from_places(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in places]
