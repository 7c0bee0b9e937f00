"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from clients.drivers import (
    DEADLINE_S,
    FETCH_WAIT_MS,
    MAX_REQUEST_BYTES,
    ClusterDescription,
    Header,
    Position,
    Record,
    Refused,
)
from clients.librdkafka import close
from narrowing import expect, present


def answer(future: Future[Any]) -> Any:
    try:
        return future.result(DEADLINE_S)
    except KafkaException as error:
        raise Refused(error.args[0].code(), error) from error


ANY_PARTITION = -1  # chosen by the partitioner


def as_record(message: confluent_kafka.Message) -> Record:
    kind, timestamp = message.timestamp()
    headers = tuple(Header(name, value) for name, value in expect(list, message.headers() or []))
    return Record(
        message.key(),
        message.value(),
        headers,
        None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.partition(),
        message.offset(),
    )


class ConfluentReader:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def take(self, count: int, *, timeout_s: float = DEADLINE_S) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        while len(records) < count and (left := deadline - time.monotonic()) > 0:
            for message in self._consumer.consume(count - len(records), min(left, 0.05)):
                if error := message.error():
                    raise Refused(error.code(), error)
                records.append(as_record(message))
        return records


class ConfluentKafka:
    name = "confluent-kafka"
    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self.common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "log_level": 2,
        }
        self.admin = AdminClient(self.common)

    def close(self) -> None:
        """The library has nothing to close but consumers."""

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        batch_bytes: int | None = None,
    ) -> list[Position]:
        producer = Producer(
            self.common
            | {
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": MAX_REQUEST_BYTES,
                "max.in.flight": 5,
                "linger.ms": 2,
                "partitioner": "murmur2_random",
                "delivery.timeout.ms": int(DEADLINE_S * 1000),
            }
            | ({"batch.size": batch_bytes} if batch_bytes else {})
        )
        positions: dict[int, Position] = {}
        errors: list[confluent_kafka.KafkaError] = []

        def delivered(index: int) -> Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]:
            def note(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
                if error is None:
                    positions[index] = Position(present(message.partition()), message.offset())
                else:
                    errors.append(error)

            return note

        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                headers=list(record.headers) or None,
                timestamp=record.timestamp or 0,
                on_delivery=delivered(index),
                partition=ANY_PARTITION if record.partition is None else record.partition,
            )
        producer.flush(DEADLINE_S)
        for error in errors:
            raise Refused(error.code(), error)
        return [positions[index] for index in range(len(records))]

    @contextmanager
    def reader(
        self, topic: str, starts: Mapping[int, int], *, wait_ms: int = FETCH_WAIT_MS
    ) -> Iterator[ConfluentReader]:
        with self.consumer(fetch_wait_max_ms=wait_ms) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
            yield ConfluentReader(consumer)

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[Consumer]:
        consumer = Consumer(
            self.common
            | {
                "group.id": "none: partitions are assigned by hand",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        try:
            yield consumer
        finally:
            close(consumer)

    def earliest(self, topic: str, partition: int) -> int:
        return self.offset(topic, partition, OffsetSpec.earliest())[0]

    def latest(self, topic: str, partition: int) -> int:
        return self.offset(topic, partition, OffsetSpec.latest())[0]

    def offset(self, topic: str, partition: int, spec: OffsetSpec) -> tuple[int, int]:
        """The offset and its timestamp."""
        wanted = TopicPartition(topic, partition)
        result = answer(self.admin.list_offsets({wanted: spec})[wanted])
        return result.offset, result.timestamp

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        offset, _ = self.offset(topic, partition, OffsetSpec.for_timestamp(timestamp))
        return None if offset < 0 else offset

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        answer(self.admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs))])[topic])

    def delete_topic(self, topic: str) -> None:
        answer(self.admin.delete_topics([topic])[topic])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=DEADLINE_S).topics)

    def partition_count(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)

    def create_partitions(self, topic: str, total: int) -> None:
        answer(self.admin.create_partitions([NewPartitions(topic, total)])[topic])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        wanted = TopicPartition(topic, partition, confluent_kafka.OFFSET_END if before == -1 else before)
        answer(next(iter(self.admin.delete_records([wanted]).values())))

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = answer(self.admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        answer(self.admin.incremental_alter_configs([resource])[resource])

    def cluster(self) -> ClusterDescription:
        description = answer(self.admin.describe_cluster())
        brokers = {node.id: f"{node.host}:{node.port}" for node in description.nodes}
        return ClusterDescription(description.cluster_id, description.controller.id, brokers)
