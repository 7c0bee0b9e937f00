"""kafka-python: the whole protocol in Python, by names of its own."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from clients.drivers import (
    DEADLINE_S,
    FETCH_WAIT_MS,
    MAX_REQUEST_BYTES,
    ClusterDescription,
    Position,
    Record,
    Refused,
    record_of,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it loads its message schemas in a way Python has deprecated
    from kafka import KafkaConsumer as KafkaConsumer
    from kafka import KafkaProducer as KafkaProducer
    from kafka import TopicPartition as TopicPartition
    from kafka.admin import ConfigResource as ConfigResource
    from kafka.admin import ConfigResourceType as ConfigResourceType
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(error.errno, error) from error


class KafkaPythonReader:
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def take(self, count: int, *, timeout_s: float = DEADLINE_S) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        while len(records) < count and (left := deadline - time.monotonic()) > 0:
            polled = self._consumer.poll(timeout_ms=int(left * 1000), max_records=count - len(records))
            for batch in polled.values():
                records.extend(map(record_of, batch))
        return records


class KafkaPython:
    name = "kafka-python"
    sends_null_headers = False

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._resources = ExitStack()
        self._resources.callback(self.admin.close)
        self._offsets_consumer = self._resources.enter_context(self.consumer())

    def close(self) -> None:
        self._resources.close()

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
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=idempotent,
            max_request_size=MAX_REQUEST_BYTES,
            max_in_flight_requests_per_connection=5,
            batch_size=batch_bytes or 16384,
            linger_ms=2,
            retry_backoff_ms=20,
        )
        try:
            with refusals():
                futures = [
                    producer.send(
                        topic,
                        record.value,
                        record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                producer.flush(DEADLINE_S)
                answers = [future.get(DEADLINE_S) for future in futures]
        finally:
            producer.close(DEADLINE_S)
        return [Position(answer.partition, answer.offset) for answer in answers]

    @contextmanager
    def reader(
        self, topic: str, starts: Mapping[int, int], *, wait_ms: int = FETCH_WAIT_MS
    ) -> Iterator[KafkaPythonReader]:
        with self.consumer(fetch_max_wait_ms=wait_ms) as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, offset in starts.items():
                consumer.seek(TopicPartition(topic, partition), offset)
            yield KafkaPythonReader(consumer)

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            retry_backoff_ms=20,
            request_timeout_ms=60_000,
            **settings,
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def earliest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, -2)

    def latest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, -1)

    def _offset(self, topic: str, partition: int, spec: int) -> int:
        wanted = TopicPartition(topic, partition)
        with refusals():
            return int(self.admin.list_partition_offsets({wanted: spec})[wanted].offset)

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        wanted = TopicPartition(topic, partition)
        with refusals():
            found = self._offsets_consumer.offsets_for_times({wanted: timestamp})[wanted]
        return None if found is None else found.offset

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        options = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs)}
        with refusals():
            self.admin.create_topics({topic: options})

    def delete_topic(self, topic: str) -> None:
        with refusals():
            self.admin.delete_topics([topic])

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def partition_count(self, topic: str) -> int:
        return len(self.admin.describe_topics([topic])[0]["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        with refusals():
            self.admin.create_partitions({topic: total})

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        with refusals():
            self.admin.delete_records({TopicPartition(topic, partition): before})

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self.admin.describe_configs([resource], config_filter="all")
        return {name: config["value"] for name, config in described["topic"][topic].items()}

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        outcome = self.admin.alter_configs([resource])["topic"][topic]
        if outcome != "OK":
            code = int(outcome.split("]")[0].removeprefix("[Error "))
            raise Refused(code, outcome)

    def cluster(self) -> ClusterDescription:
        description = self.admin.describe_cluster()
        brokers = {broker["broker_id"]: f"{broker['host']}:{broker['port']}" for broker in description["brokers"]}
        return ClusterDescription(description["cluster_id"], description["controller_id"], brokers)
