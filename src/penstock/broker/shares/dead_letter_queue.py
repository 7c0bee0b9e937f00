"""Copies records that no member could process to the dead letter queue of their group (KIP-1191).

A record that was rejected, or delivered too often, is archived once it is in the topic that the group names with
`errors.deadletterqueue.topic.name`. There it has headers that say where it came from and why; its key, value and own
headers only with `errors.deadletterqueue.copy.record.enable`. A leader that fails in between is followed by one that
copies the record, perhaps again.

If the queue is not usable (the topic may not be used, does not exist, or refuses records for too long), the records are
archived without a copy, and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.topic_creation import TopicCreation
from penstock.broker.net.peers import PeerFailed
from penstock.broker.partitions.replica import Replica
from penstock.broker.shares.group_settings import ShareGroupSettings
from penstock.io.clock import Clock
from penstock.log.log import DECOMPRESSED_BYTES_MAX, Log
from penstock.metadata.image import Metadata, ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.records.batch import iterate_headers
from penstock.records.builder import NewRecord, build_batch
from penstock.records.record import Record, iterate_records
from penstock.settings.live import LiveSettings
from penstock.shares.states import DeadLetter, Reason, Span

logger = logging.getLogger("penstock.shares")

CHANNEL: Final = "dead letters"
ENABLE: Final = "errors.deadletterqueue.group.enable"
OFFSETS_AT_ONCE: Final = 500
READ_BYTES: Final = 512 * 1024
BACKOFF_MIN_S: Final = 0.1
BACKOFF_MAX_S: Final = 2.0
PATIENCE_S: Final = 60.0
REASONS: Final = {
    Reason.REJECTED: "Offset rejected by client.",
    Reason.DELIVERY_COUNT: "Offset delivery count exceeded the threshold.",
}


class Unusable(Exception):
    """Why the dead letter queue cannot be used."""


class DeadLetterPartition(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int
    leader: int


class DeadLetterQueue:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        metadata: Metadata,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        brokers: Brokers,
        topic_creation: TopicCreation,
    ) -> None:
        self.settings = settings
        self.loop = loop
        self.clock = clock
        self.brokers = brokers
        self._metadata = metadata
        self._topic_creation = topic_creation

    def copy(
        self,
        group_id: str,
        replica: Replica,
        letter: DeadLetter,
        settings: Callable[[], ShareGroupSettings],
        done: Callable[[], None],
    ) -> None:
        """`done` is called when the records are copied, or cannot be."""
        _Copying(self, group_id, replica, letter, settings, done).go_on()

    def destination(self, name: str, source_partition: int) -> DeadLetterPartition | None:
        """Where to write; None if there is no leader yet. Raises Unusable if the topic must not be used."""
        image, now = self._metadata.image, self.settings.now
        prefix = now.errors_deadletterqueue_topic_name_prefix
        if not name or name.startswith("__") or not name.startswith(prefix):
            raise Unusable(f"the group's dead letter topic {name!r} does not begin with {prefix!r}")
        topic = image.topics.by_name(name)
        if topic is None:
            if not now.errors_deadletterqueue_auto_create_topics_enable:
                raise Unusable(f"topic {name} does not exist: create it, with {ENABLE}=true")
            self._topic_creation.ask(
                [
                    CreatableTopic(
                        name=name,
                        num_partitions=-1,
                        replication_factor=-1,
                        configs=[
                            CreatableTopicConfig(name=ENABLE, value="true"),
                            CreatableTopicConfig(name="message.timestamp.type", value="CreateTime"),
                        ],
                    )
                ]
            )
            return None
        if image.config(ResourceType.TOPIC, name).get(ENABLE, "false").lower() != "true":
            raise Unusable(f"topic {name} is not a dead letter queue: set {ENABLE}=true on it")
        index = source_partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        return DeadLetterPartition(name, topic.topic_id, index, leader) if leader >= 0 else None


class _Copying:
    """The way of some neighbouring records to the dead letter queue."""

    def __init__(
        self,
        queue: DeadLetterQueue,
        group_id: str,
        replica: Replica,
        letter: DeadLetter,
        settings: Callable[[], ShareGroupSettings],
        done: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._group_id = group_id
        self._replica = replica
        self._letter = letter
        self._settings = settings
        self._done = done
        self._next = letter.first
        self._until = queue.loop.time() + PATIENCE_S
        self._backoff_s = BACKOFF_MIN_S

    def go_on(self) -> None:
        if self._next > self._letter.last:
            self._done()
            return
        try:
            destination = self._queue.destination(
                self._settings().dead_letter_topic, self._replica.topic_partition.partition
            )
        except Unusable as unusable:
            self._give_up(str(unusable))
            return
        if destination is None:
            self._try_again("it has no leader")
        elif self._settings().copies_dead_letters:
            log, end = self._replica.log, self._replica.high_watermark
            wanted = Span(self._next, self._letter.last)
            future = self._queue.loop.run_in_executor(None, lambda: _read(log, wanted, end))
            future.add_done_callback(lambda done: self._was_read(destination, done))
        else:
            last = min(self._letter.last, self._next + OFFSETS_AT_ONCE - 1)
            self._send(destination, [self._record(offset, None) for offset in range(self._next, last + 1)], last)

    def _was_read(self, destination: DeadLetterPartition, future: asyncio.Future[tuple[list[Record], int]]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._give_up(f"its records cannot be read: {error}")
            return
        records, last = future.result()
        if records:
            self._send(destination, [self._record(record.offset, record) for record in records], last)
        else:
            self._next = last + 1
            self.go_on()

    def _record(self, offset: int, record: Record | None) -> NewRecord:
        letter = self._letter
        source = self._replica.topic_partition
        headers = [
            *(record.headers if record is not None else ()),
            ("__dlq.errors.topic", source.topic.encode()),
            ("__dlq.errors.partition", str(source.partition).encode()),
            ("__dlq.errors.offset", str(offset).encode()),
            ("__dlq.errors.group", self._group_id.encode()),
            ("__dlq.errors.delivery.count", str(letter.delivery_count).encode()),
            ("__dlq.errors.message", REASONS[letter.reason].encode()),
        ]
        key, value = (None, None) if record is None else (record.key, record.value)
        return self._queue.clock.now_ms(), key, value, headers

    def _send(self, destination: DeadLetterPartition, records: list[NewRecord], last: int) -> None:
        timeout_ms = self._queue.settings.now.request_timeout_ms
        request = ProduceRequest(
            acks=-1,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=destination.topic,
                    topic_id=destination.topic_id,
                    partition_data=[
                        PartitionProduceData(index=destination.partition, records=memoryview(build_batch(records)))
                    ],
                )
            ],
        )

        def done(response: ProduceResponse | PeerFailed) -> None:
            problem = _problem_in(response)
            if problem is not None:
                self._try_again(problem)
            else:
                self._next = last + 1
                self._backoff_s = BACKOFF_MIN_S
                self.go_on()

        peer = self._queue.brokers.peer(destination.leader, CHANNEL)
        if peer is None:
            self._try_again(f"the address of broker {destination.leader} is not known")
        else:
            peer.send(request, done, timeout=timeout_ms / 1000)

    def _try_again(self, problem: str) -> None:
        loop = self._queue.loop
        if self._replica.leader is None:
            return  # the next leader goes on
        if loop.time() >= self._until:
            self._give_up(problem)
            return
        loop.call_later(self._backoff_s, self.go_on)
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)

    def _give_up(self, problem: str) -> None:
        logger.error(
            "offsets %d to %d of %s are archived without a copy in the dead letter queue of share group %s: %s",
            self._next,
            self._letter.last,
            self._replica.topic_partition,
            self._group_id,
            problem,
        )
        self._done()


def _read(log: Log, wanted: Span, end: int) -> tuple[list[Record], int]:
    """Records from the first wanted one on, and the last offset that they cover; in a worker thread.

    `end`: the high watermark. Batches are read whole, so they may reach beyond what is wanted.
    """
    first, last = wanted
    try:
        data = log.read(first, READ_BYTES, end).data
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        return [], last  # they were deleted
    records: list[Record] = []
    covered = last
    for position, header in iterate_headers(data):
        if not header.is_control:
            records += [
                record
                for record in iterate_records(data, position, header, max_size=DECOMPRESSED_BYTES_MAX)
                if first <= record.offset <= last
            ]
        covered = min(last, header.last_offset)
    return records, covered


def _problem_in(response: ProduceResponse | PeerFailed) -> str | None:
    if isinstance(response, PeerFailed):
        return response.message
    for topic in response.responses:
        for answer in topic.partition_responses:
            code = ErrorCode(answer.error_code)
            return None if code is ErrorCode.NONE else answer.error_message or code.name
    return "the answer is empty"
