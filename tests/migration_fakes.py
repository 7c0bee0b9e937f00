"""A cluster in memory that does what the migration asks of it: replicas with logs of their own, settings, moves.

A move is carried out at once: new replicas are copies of the leader's log, and in sync. Tests then change single
replicas, or what happens when they are read (`on_fetch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from penstock.client.wire.admin import Admin
from penstock.client.wire.admin.cluster import BrokerDescription
from penstock.client.wire.admin.configs import ConfigEntry
from penstock.client.wire.admin.reassignments import Reassignment
from penstock.client.wire.admin.topics import PartitionDescription, TopicDescription
from penstock.client.wire.cluster import Cluster
from penstock.migrate.content import Batch
from penstock.migrate.moving import Move
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.records.batch import read_header
from penstock.records.builder import build_batch

OLD, NEW = 1, 11
Written = tuple[str, str | None]


def plain(offset: int, *records: Written, timestamp: int = 0) -> Batch:
    return parsed(
        build_batch(
            [(timestamp, key.encode(), None if value is None else value.encode(), ()) for key, value in records],
            base_offset=offset,
        )
    )


def parsed(data: bytearray) -> Batch:
    return read_header(data), bytes(data)


def log_of(count: int, *, begin: int = 0, timestamp: int = 0) -> list[Batch]:
    return [plain(offset, (f"k{offset}", f"v{offset}"), timestamp=timestamp) for offset in range(begin, begin + count)]


@dataclass
class Replica:
    log: list[Batch]
    start: int = 0
    high_watermark: int = -1  # -1: the end of the log

    def __post_init__(self) -> None:
        if self.high_watermark < 0:
            self.high_watermark = self.log[-1][0].next_offset if self.log else self.start


@dataclass
class Partition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    logs: dict[int, Replica]


@dataclass
class FakeCluster:
    """Brokers 1 to 9 are Kafka's, others Penstock's."""

    brokers: Sequence[int] = (OLD, NEW)
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict)
    topic_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_settings: dict[int, dict[str, str]] = field(default_factory=dict)
    on_fetch: Callable[[int, int], None] = lambda broker_id, position: None
    on_begin: Callable[[Mapping[TopicPartition, Sequence[int] | None]], None] = lambda targets: None
    fetched: list[int] = field(default_factory=list)
    """The brokers that records were read from."""

    def add(self, topic: str, logs: Mapping[int, Replica], *, leader: int = OLD, **settings: str) -> Partition:
        held = tuple(logs)
        self.topic_settings.setdefault(topic, {}).update(
            {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self.partitions[TopicPartition(topic, 0)] = Partition(held, held, leader, dict(logs))
        return self.partitions[TopicPartition(topic, 0)]

    def move(self, **options: Any) -> Move:
        return Move(self.admin, cast(Cluster, self), [OLD], [NEW], **options)

    def run(self, **options: Any) -> None:
        for _ in self.move(**options).run(pause=lambda seconds: None):
            pass

    # -- what the migration asks ---------------------------------------------------------------------------------------

    @property
    def admin(self) -> Admin:
        fakes = SimpleNamespace(
            cluster=SimpleNamespace(describe=self._describe),
            configs=SimpleNamespace(describe=self._settings, of_topics=self._of_topics, alter=self._alter),
            topics=SimpleNamespace(list=lambda internal: self._topics(), describe=self._topics),
            reassignments=SimpleNamespace(list=lambda: list[Reassignment](), begin=self._begin),
        )
        return cast(Admin, fakes)

    def topics(self, names: Iterable[str]) -> list[Any]:
        return [SimpleNamespace(topic_id=name.encode()) for name in names]

    def _describe(self) -> Any:
        brokers = [BrokerDescription(each, "h", 1, None) for each in self.brokers]
        return SimpleNamespace(cluster_id="c", brokers=brokers)

    def _settings(self, resource: object, name: str) -> list[ConfigEntry]:
        own = {} if int(name) < 10 else {"penstock.own": "1"}
        values = {**own, **self.broker_settings.get(int(name), {})}
        return [ConfigEntry(key, value, "DYNAMIC_BROKER_CONFIG", False, False) for key, value in values.items()]

    def _of_topics(self, topics: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str | None]]:
        wanted = list(names)
        return {topic: {name: self.topic_settings[topic].get(name) for name in wanted} for topic in topics}

    def _alter(
        self,
        resource: int,
        name: str,
        values: Mapping[str, str] | None = None,
        *,
        delete: Iterable[str] = (),
    ) -> None:
        found = self.topic_settings[name] if resource == 2 else self.broker_settings.setdefault(int(name), {})
        found.update(values or {})
        for key in delete:
            found.pop(key, None)

    def _topics(self, names: Iterable[str] | None = None) -> list[TopicDescription]:
        wanted = None if names is None else set(names)
        if wanted is not None and not wanted <= {each.topic for each in self.partitions}:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [
            TopicDescription(
                place.topic,
                None,
                False,
                (PartitionDescription(place.partition, held.leader, 0, held.replicas, held.isr, ()),),
            )
            for place, held in sorted(self.partitions.items())
            if wanted is None or place.topic in wanted
        ]

    def _begin(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        self.on_begin(targets)
        for place, target in targets.items():
            if place not in self.partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            held = self.partitions[place]
            assert target is not None
            for each in target:
                if each not in held.replicas:
                    led = held.logs[held.leader]
                    held.logs[each] = Replica(list(led.log), led.start)
            held.replicas = tuple(target)
            held.isr = held.replicas
            if held.leader not in held.replicas:
                held.leader = held.replicas[0]

    def request_broker(self, broker_id: int, message: Any, response: object) -> Any:
        if isinstance(message, ListOffsetsRequest):
            assert message.replica_id == -2, "followers answer no other consumer"
            (topic,) = message.topics
            replica = self._replica(TopicPartition(topic.name, 0), broker_id)
            found = ListOffsetsPartitionResponse(offset=replica.start)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[found])])
        assert isinstance(message, FetchRequest)
        (topic_asked,) = message.topics
        place = TopicPartition(topic_asked.topic, 0)
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    partitions=[self._fetched(place, broker_id, topic_asked.partitions[0].fetch_offset)]
                )
            ]
        )

    def _replica(self, place: TopicPartition, broker_id: int) -> Replica:
        if place not in self.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[place].logs[broker_id]

    def _fetched(self, place: TopicPartition, broker_id: int, position: int) -> PartitionData:
        self.on_fetch(broker_id, position)
        replica = self._replica(place, broker_id)
        if position < replica.start:  # as brokers of both kinds answer
            return PartitionData(
                error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, log_start_offset=-1, records=b""
            )
        found = [
            data
            for header, data in replica.log
            if header.last_offset >= max(position, replica.start) and header.base_offset < replica.high_watermark
        ]
        self.fetched += [broker_id] * bool(found)
        return PartitionData(
            high_watermark=replica.high_watermark,
            log_start_offset=replica.start,
            records=memoryview(b"".join(found[:3])),
        )
