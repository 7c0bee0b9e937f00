"""The topics of a query as its driver sees them: the partitions, and where their logs begin and end.

A request is repeated while leaders move or brokers are down, each time with fresh metadata, until `patience` ends. If
no broker answers the first request, it is not repeated: the address is wrong then, and the message names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TypeVar

from penstock.client.errors import ClientError, TimedOut, Unreachable, raise_for
from penstock.client.wire.admin.topics import EARLIEST, LATEST
from penstock.client.wire.leaders import PROPAGATION_S, STALE, Leaders, first_contact
from penstock.client.wire.log_offsets import READ_UNCOMMITTED, LogOffsets
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID, TopicPartition, Uuid
from penstock.protocol.messages.metadata import MetadataResponseTopic
from penstock.spark.source.errors import MissingTopic, SourceUnreachable
from penstock.spark.source.kafka_settings import nearest
from penstock.spark.source.offsets import Offsets, TopicIds
from penstock.spark.source.options import SourceOptions

Result = TypeVar("Result")


class TopicLogs:
    def __init__(self, options: SourceOptions) -> None:
        kafka = options.kafka
        self._options = options
        self._subscription = options.subscription
        self._bootstrap = kafka.bootstrap
        self.leaders = Leaders(kafka.bootstrap, timeout=kafka.request_timeout)
        self.topic_ids: dict[str, Uuid] = {}
        self.first_ids: dict[str, Uuid] = {}  # of every topic, when it was first seen
        self.partitions: list[TopicPartition] = []
        self._looked: float | None = None

    def __enter__(self) -> TopicLogs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leaders.close()

    def look(self) -> None:
        """Find the partitions. The first time, all named topics must exist."""
        if self._looked is None:
            self._first_look()
        else:
            self._patiently(self._see)

    def look_if_old(self) -> None:
        if self._looked is None or time.monotonic() - self._looked > self._options.kafka.metadata_age:
            self.look()

    def ends(self) -> Offsets:
        """Where each partition ends for this query: with read_committed, at its last stable offset."""
        return self._patiently(lambda: self._at(self.partitions, LATEST, self._options.kafka.isolation))

    def log_ends(self) -> Offsets:
        """Where each partition ends, records of open transactions included."""
        return self._patiently(lambda: self._at(self.partitions, LATEST, READ_UNCOMMITTED))

    def begins(self) -> Offsets:
        return self._patiently(lambda: self._at(self.partitions, EARLIEST, READ_UNCOMMITTED))

    def at_time(self, partitions: list[TopicPartition], timestamp: int) -> Offsets:
        """The first record at or after the time; partitions without one are missing."""
        isolation = self._options.kafka.isolation
        found = self._patiently(lambda: self._at(partitions, timestamp, isolation))
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    # -- Looking.

    def _first_look(self) -> None:
        deadline = time.monotonic() + PROPAGATION_S
        while True:
            try:
                missing = self._see()
            except (Unreachable, TimedOut) as error:
                raise SourceUnreachable(f"{error} (kafka.bootstrap.servers={self._bootstrap})") from None
            if not missing:
                return
            if time.monotonic() > deadline:
                raise self._not_there(missing)
            time.sleep(self._options.offset_retry_interval)

    def _see(self) -> list[str]:
        """Store the partitions that exist; returns the named topics that do not."""
        named = self._subscription.names
        cluster = self.leaders.cluster
        metadata = first_contact(cluster, lambda: cluster.metadata(named or None))
        there = {topic.name or "": topic for topic in metadata.topics if self._is_there(topic)}
        gone = [name for name in self.topic_ids if name not in there]
        changed = [name for name, topic in there.items() if self.topic_ids.get(name, topic.topic_id) != topic.topic_id]
        self.leaders.forget([*gone, *changed])
        self.topic_ids = {name: topic.topic_id for name, topic in there.items()}
        self.first_ids = {**self.topic_ids, **self.first_ids}
        existing = {TopicPartition(name, each.partition_index) for name in there for each in there[name].partitions}
        wanted = self._subscription.partitions
        partitions = sorted(existing & wanted if wanted else existing)
        if partitions and (changed or partitions != self.partitions):
            self.leaders.find(self.topic_ids)
        self.partitions = partitions
        self._looked = time.monotonic()
        if wanted:
            return [str(each) for each in sorted(wanted - existing)]
        return [name for name in named if name not in there] if named else [] if there else [str(self._subscription)]

    def _is_there(self, topic: MetadataResponseTopic) -> bool:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        if self._subscription.pattern is not None:
            return not topic.is_internal and self._subscription.takes_topic(topic.name or "")
        if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise_for(topic.error_code, None, f"topic {topic.name!r} of option {self._subscription.option}")
        return True

    def is_another(self, topic: str, known: TopicIds) -> bool:
        """Whether the topic of this name is not the one that offsets belong to. Offsets without ids belong to the topic
        that was seen first."""
        now = self.topic_ids.get(topic, ZERO_UUID)
        then = known.get(topic) or self.first_ids.get(topic, ZERO_UUID)
        return now != then and ZERO_UUID not in (now, then)

    def _not_there(self, missing: list[str]) -> MissingTopic:
        option = self._subscription.option
        if self._subscription.pattern is not None:
            return MissingTopic(
                f"subscribePattern={self._subscription.pattern!r} matches no topic of {self._bootstrap}"
            )
        if option == "assign":
            return MissingTopic(f"assign names {', '.join(missing)}, which {self._bootstrap} does not have")
        names = [topic.name or "" for topic in self.leaders.cluster.metadata(None).topics if not topic.is_internal]
        near = nearest(missing[0], names)
        return MissingTopic(f"there is no topic {missing[0]!r} (subscribe) at {self._bootstrap}.{near}")

    # -- Asking.

    def _at(self, partitions: Iterable[TopicPartition], timestamp: int, isolation: int) -> Offsets:
        still_there = [each for each in partitions if each.topic in self.topic_ids]
        return LogOffsets(self.leaders, isolation, 0.0).at(still_there, timestamp)

    def _patiently(self, attempt: Callable[[], Result]) -> Result:
        options = self._options
        deadline = time.monotonic() + options.kafka.patience
        attempts = 0
        while True:
            try:
                if attempts:
                    self._see()
                    self.leaders.refresh()
                return attempt()
            except (KafkaError, ClientError) as error:
                final = isinstance(error, KafkaError) and error.code not in STALE
                exhausted = options.offset_retries is not None and attempts >= options.offset_retries
                if final or exhausted or time.monotonic() > deadline:
                    raise
            attempts += 1
            time.sleep(options.offset_retry_interval)
