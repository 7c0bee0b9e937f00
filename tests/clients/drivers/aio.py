"""aiokafka, driven from a thread of the test: its event loop runs only while the test waits for something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

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

T = TypeVar("T")


class AioKafkaReader:
    def __init__(self, client: AioKafka, consumer: AIOKafkaConsumer) -> None:
        self._client = client
        self._consumer = consumer

    def take(self, count: int, *, timeout_s: float = DEADLINE_S) -> list[Record]:
        return self._client.run(self._take(count, timeout_s))

    async def _take(self, count: int, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        while len(records) < count and (left := deadline - time.monotonic()) > 0:
            polled = await self._consumer.getmany(timeout_ms=int(left * 1000), max_records=count - len(records))
            for batch in polled.values():
                records.extend(map(record_of, batch))
        return records


class AioKafka:
    name = "aiokafka"
    sends_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._runner = asyncio.Runner()
        self.admin = self.run(self._started_admin())

    def close(self) -> None:
        self.run(self.admin.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except KafkaError as error:
            raise Refused(error.errno, error) from error

    async def _started_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        return admin

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
        async def send() -> list[Position]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == -1 else acks,
                enable_idempotence=idempotent,
                max_request_size=MAX_REQUEST_BYTES,
                max_batch_size=batch_bytes or 1 << 20,
                linger_ms=2,
                retry_backoff_ms=20,
            )
            async with producer:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        headers=[tuple(header) for header in record.headers],
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                answers = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
            # With acks=0 there is nothing to report.
            return [Position(answer.partition, answer.offset) for answer in answers if answer]

        return self.run(send())

    @contextmanager
    def reader(
        self, topic: str, starts: Mapping[int, int], *, wait_ms: int = FETCH_WAIT_MS
    ) -> Iterator[AioKafkaReader]:
        async def positioned() -> AIOKafkaConsumer:
            consumer = await self._started_consumer(fetch_max_wait_ms=wait_ms)
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, offset in starts.items():
                consumer.seek(TopicPartition(topic, partition), offset)
            return consumer

        consumer = self.run(positioned())
        try:
            yield AioKafkaReader(self, consumer)
        finally:
            self.run(consumer.stop())

    async def _started_consumer(self, **settings: Any) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            retry_backoff_ms=20,
            **settings,
        )
        await consumer.start()
        return consumer

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = await self._started_consumer()
        try:
            yield consumer
        finally:
            await consumer.stop()

    def earliest(self, topic: str, partition: int) -> int:
        async def ask() -> int:
            async with self._consumer() as consumer:
                offsets = await consumer.beginning_offsets([TopicPartition(topic, partition)])
                return int(offsets[TopicPartition(topic, partition)])

        return self.run(ask())

    def latest(self, topic: str, partition: int) -> int:
        async def ask() -> int:
            async with self._consumer() as consumer:
                offsets = await consumer.end_offsets([TopicPartition(topic, partition)])
                return int(offsets[TopicPartition(topic, partition)])

        return self.run(ask())

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        async def ask() -> int | None:
            wanted = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                found = (await consumer.offsets_for_times({wanted: timestamp}))[wanted]
                return None if found is None else found.offset

        return self.run(ask())

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new_topic = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
        response = self.run(self.admin.create_topics([new_topic]))
        check(*(code for _, code, *_ in response.topic_errors))

    def delete_topic(self, topic: str) -> None:
        response = self.run(self.admin.delete_topics([topic]))
        check(*(code for _, code in response.topic_error_codes))

    def topics(self) -> set[str]:
        return set(self.run(self.admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        return len(self.run(self.admin.describe_topics([topic]))[0]["partitions"])

    def create_partitions(self, topic: str, total: int) -> None:
        self.run(self.admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.run(self.admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)}))

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = self.run(self.admin.describe_configs([resource]))
        ((code, _, _, _, entries),) = response.resources
        check(code)
        return {name: value for name, value, *_ in entries}

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """By the legacy request, the only one it has: what is not named falls back to its default."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (response,) = self.run(self.admin.alter_configs([resource]))
        check(*(code for code, *_ in response.resources))

    def cluster(self) -> ClusterDescription:
        description = self.run(self.admin.describe_cluster())
        brokers = {broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in description["brokers"]}
        return ClusterDescription(description["cluster_id"], description["controller_id"], brokers)


def check(*codes: int) -> None:
    for code in codes:
        if code:
            raise Refused(code, for_code(code).__name__)
