"""The loop of `penstock consume`: prints records until the limit, the end or a timeout.

Without a group, partitions are assigned at the requested offsets, and nothing is committed. In a group, the coordinator
assigns and revokes partitions, and printed records are committed. A record counts as read only after it was written to
stdout and flushed, so the next owner of a partition may print a few records again but never misses one.

**A group gets a position at once.** In partitions in which the group has committed nothing, its starting offset is
committed when the partition is assigned. Signals wait for the flush and the commit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli.output import fail, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka import TopicPartition as Assigned

_POLL_S = 0.05
_BATCH = 1000
_COMMIT_S = 10.0
_HURRY_S = 1.0
_PROGRESS_S = 0.5


class Span(NamedTuple):
    begin: int
    end: int


class Interruption:
    """Handles Ctrl-C and SIGTERM when it is safe to.

    Raised in a callback of librdkafka, they would be lost. Raised between printing and committing, they would cause
    records to be printed twice. And a group waits for a member that does not leave properly. So the handler only notes
    the signal, and the loop checks for it. A second signal, a little later, ends the process at once.
    """

    def __init__(self) -> None:
        self._first: float | None = None

    @contextmanager
    def caught(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._arrived) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def raise_if_any(self) -> None:
        if self._first is not None:
            raise KeyboardInterrupt

    def _arrived(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif now - self._first > _HURRY_S:  # a terminal and a parent may both pass on the same signal
            os._exit(128 + number)


@dataclass(slots=True)
class Reading:
    topic: str
    render: Callable[[Message], bytes]
    max_messages: int | None
    timeout: float | None
    exit_at_end: bool
    progress: bool
    spans: dict[int, Span]
    count: int = 0
    size: int = 0
    at_end: set[int] = field(default_factory=set)
    disconnected: bool = False
    interruption: Interruption = field(default_factory=Interruption)

    def run(self, settings: dict[str, Any]) -> None:
        from confluent_kafka import Consumer, KafkaException

        settings["error_cb"] = self._note_error
        try:
            consumer = Consumer(settings)
        except KafkaException as error:
            fail(error.args[0].str())
        started = time.monotonic()
        with self.interruption.caught():
            try:
                self._begin(consumer)
                self._loop(consumer, started)
            finally:
                consumer.close()
        if self.progress:
            self._show(started, "\n")

    def _begin(self, consumer: Consumer) -> None:
        from confluent_kafka import TopicPartition as Assigned

        consumer.assign([Assigned(self.topic, partition, span.begin) for partition, span in self.spans.items()])

    def _printed(self, consumer: Consumer, next_offsets: dict[int, int]) -> None:
        """Called when the records up to these offsets have been printed."""

    def _is_at_end(self) -> bool:
        return len(self.at_end) == len(self.spans)

    def _loop(self, consumer: Consumer, started: float) -> None:
        out = sys.stdout.buffer
        last_record = shown = started
        while True:
            room = _BATCH if self.max_messages is None else min(_BATCH, self.max_messages - self.count)
            wait = _POLL_S if self.timeout is None else min(_POLL_S, self.timeout)
            messages = consumer.consume(room, wait)
            now = time.monotonic()
            next_offsets: dict[int, int] = {}
            for message in messages:
                error = message.error()
                if error is not None:
                    self._handle(error, message)
                elif not self.exit_at_end or self._is_within(message):
                    line = self.render(message)
                    out.write(line)
                    self.count += 1
                    self.size += len(line)
                    next_offsets[message.partition() or 0] = (message.offset() or 0) + 1
            if next_offsets:
                out.flush()
                self._printed(consumer, next_offsets)
                last_record = now
                self.disconnected = False
            self.interruption.raise_if_any()
            if self.progress and now - shown > _PROGRESS_S:
                self._show(started, "\r")
                shown = now
            if self.max_messages is not None and self.count >= self.max_messages:
                return
            if self.exit_at_end and self._is_at_end():
                return
            if self.timeout is not None and now - last_record >= self.timeout:
                return

    def _is_within(self, message: Message) -> bool:
        """Whether a record is before the end offset of the start; notes when the end is reached."""
        partition, offset = message.partition() or 0, message.offset() or 0
        end = (
            self.spans[partition].end if partition in self.spans else 0
        )  # partitions that were added later are not part of it
        if offset >= end - 1:
            self.at_end.add(partition)
        return offset < end

    def _handle(self, error: KafkaError, message: Message) -> None:
        from confluent_kafka import KafkaError as Codes

        if error.code() == Codes._PARTITION_EOF:
            self.at_end.add(message.partition() or 0)
        elif not error.retriable() and not self._is_of_group(error):
            fail(f"{self.topic}: {error.str()}")

    def _is_of_group(self, error: KafkaError) -> bool:
        """librdkafka looks for the coordinator of a group even if it reads without one."""
        from confluent_kafka import KafkaError as Codes

        return not isinstance(self, GroupReading) and error.code() == Codes.GROUP_AUTHORIZATION_FAILED

    def _note_error(self, error: KafkaError) -> None:
        """librdkafka reconnects by itself; tell the user why nothing arrives."""
        from confluent_kafka import KafkaError as Codes

        if error.code() == Codes._ALL_BROKERS_DOWN and not self.disconnected:
            self.disconnected = True
            note("penstock consume: no broker can be reached, trying again")

    def _show(self, started: float, end: str) -> None:
        seconds = max(time.monotonic() - started, 1e-9)
        text = f"{self.count} records, {self.count / seconds:,.0f}/s, {self.size / seconds / 1e6:,.1f} MB/s"
        if end == "\n":
            note(text)
        else:
            print(f"\r{text}   ", end="", file=sys.stderr, flush=True)


@dataclass(slots=True)
class GroupReading(Reading):
    """Reads as a member of a group. The end is reached when all assigned partitions are at their end."""

    assigned: set[int] = field(default_factory=set)

    def _begin(self, consumer: Consumer) -> None:
        consumer.subscribe([self.topic], on_assign=self._gain, on_revoke=self._give_up, on_lost=self._give_up)

    def _printed(self, consumer: Consumer, next_offsets: dict[int, int]) -> None:
        """Stores the offsets; librdkafka commits them periodically, when partitions move, and when we leave."""
        from confluent_kafka import KafkaError as Codes
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Assigned

        try:
            consumer.store_offsets(offsets=[Assigned(self.topic, *each) for each in next_offsets.items()])
        except KafkaException as error:
            if error.args[0].code() != Codes._STATE:  # partitions that belong to another member by now
                fail(f"cannot commit: {error.args[0].str()}")

    def _is_at_end(self) -> bool:
        return bool(self.assigned) and self.assigned <= self.at_end

    def _gain(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        """Commits a starting offset where the group has none yet.

        Otherwise a partition without printed records would have no committed offset when we leave. The next member
        would start at the end of the log at that time and miss the records in between.
        """
        from confluent_kafka import KafkaException

        try:
            new = [each for each in consumer.committed(partitions, _COMMIT_S) if each.offset < 0]
            for each in new:
                each.offset = self.spans[each.partition].begin if each.partition in self.spans else 0
            if new:
                consumer.commit(offsets=new, asynchronous=False)
        except KafkaException as error:
            note(f"penstock consume: the group has no place in some partitions yet: {error.args[0].str()}")
        self.assigned |= {each.partition for each in partitions}
        self._tell()

    def _give_up(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        gone = {each.partition for each in partitions}
        self.assigned -= gone
        self.at_end -= gone
        self._tell()

    def _tell(self) -> None:
        if self.progress:
            note(f"\rpartitions: {', '.join(map(str, sorted(self.assigned))) or 'none'}".ljust(60))
