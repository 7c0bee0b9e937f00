"""The producers that `bench.transactions` compares with themselves.

Each writes records one after the other (plain), with a wait for all acknowledgements after so many of them (flushed),
or so many in a transaction.

All are idempotent with acks=all, and have their settings as they come otherwise. confluent-kafka and Penstock's own
producer stand on librdkafka; they, kafka-python and aiokafka add partitions to a transaction with a request of its own
(transaction version 0 or 1), Java's client leaves that to the leaders of the partitions (version 2).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

from penstock.client.librdkafka.producer import Producer

TOPIC = "bench-transactions"
WAYS = ("plain", "flushed", "transactions")
TIMEOUT_S = 60.0
WARMUP = 5
JAVA_SOURCE = os.path.join(os.path.dirname(__file__), "TransactionalProducer.java")


@dataclass(frozen=True, kw_only=True)
class ProducerSettings:
    client: str
    bootstrap: str
    way: str
    transactional_id: str
    starts_at: float
    """By `time.time`, for all producers at once."""
    seconds: float
    records: int
    value_size: int
    partitions: int
    java_classpath: str

    @property
    def in_transactions(self) -> bool:
        return self.way == "transactions"

    @property
    def value(self) -> bytes:
        return b"v" * self.value_size


class Client(Protocol):
    """One producer; `settings` says how it is meant to write."""

    def begin(self) -> None: ...

    def send(self) -> None:
        """As many records as a transaction has; waits only while the queue is full."""

    def flush(self) -> None: ...

    def commit(self) -> None: ...


class Confluent:
    def __init__(self, settings: ProducerSettings) -> None:
        properties: dict[str, Any] = {"bootstrap.servers": settings.bootstrap, "enable.idempotence": True}
        if settings.in_transactions:
            properties["transactional.id"] = settings.transactional_id
        self._settings = settings
        self._producer = confluent_kafka.Producer({**properties, "acks": "all"})
        if settings.in_transactions:
            self._producer.init_transactions(TIMEOUT_S)
        self._value = settings.value

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self) -> None:
        producer, value, partitions = self._producer, self._value, self._settings.partitions
        for number in range(self._settings.records):
            while True:
                try:
                    producer.produce(TOPIC, value, partition=number % partitions)
                    break
                except BufferError:
                    producer.poll(0.002)
        producer.poll(0)

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)


class Penstock:
    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        identity = settings.transactional_id if settings.in_transactions else None
        self._producer: Producer[Any, bytes] = Producer(settings.bootstrap, transactional_id=identity)
        self._value = settings.value
        self._transaction: Any = None

    def begin(self) -> None:
        self._transaction = self._producer.transaction()
        self._transaction.__enter__()

    def send(self) -> None:
        producer, value, partitions = self._producer, self._value, self._settings.partitions
        for number in range(self._settings.records):
            producer.send(TOPIC, value, partition=number % partitions)

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_S)

    def commit(self) -> None:
        self._transaction.__exit__(None, None, None)


class KafkaPython:
    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        identity = settings.transactional_id if settings.in_transactions else None
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=settings.bootstrap, enable_idempotence=True, acks="all", transactional_id=identity
        )
        if settings.in_transactions:
            self._producer.init_transactions()
        self._value = settings.value

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self) -> None:
        for number in range(self._settings.records):
            self._producer.send(TOPIC, self._value, partition=number % self._settings.partitions)

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction()


class Aiokafka:
    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._value = settings.value
        self._producer: Any
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        settings = self._settings
        identity = settings.transactional_id if settings.in_transactions else None
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap, enable_idempotence=True, acks="all", transactional_id=identity
        )
        await self._producer.start()

    def begin(self) -> None:
        self._loop.run_until_complete(self._producer.begin_transaction())

    async def _send(self) -> None:
        for number in range(self._settings.records):
            await self._producer.send(TOPIC, self._value, partition=number % self._settings.partitions)

    def send(self) -> None:
        self._loop.run_until_complete(self._send())

    def flush(self) -> None:
        self._loop.run_until_complete(self._producer.flush())

    def commit(self) -> None:
        self._loop.run_until_complete(self._producer.commit_transaction())


CLIENTS: dict[str, Callable[[ProducerSettings], Client]] = {
    "confluent-kafka": Confluent,
    "penstock": Penstock,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
JAVA = "java"


def produce(settings: ProducerSettings) -> float:
    """Records a second, all of them acknowledged or committed."""
    if settings.client == JAVA:
        return _produce_with_java(settings)
    client = CLIENTS[settings.client](settings)

    def write() -> None:
        if settings.in_transactions:
            client.begin()
        client.send()
        if settings.in_transactions:
            client.commit()
        elif settings.way == "flushed":
            client.flush()

    for _ in range(WARMUP):
        write()
    client.flush()
    time.sleep(max(0.0, settings.starts_at - time.time()))
    began, written = time.perf_counter(), 0
    while time.perf_counter() - began < settings.seconds:
        write()
        written += settings.records
    client.flush()
    return written / (time.perf_counter() - began)


def _produce_with_java(settings: ProducerSettings) -> float:
    arguments = (
        settings.bootstrap,
        TOPIC,
        settings.way,
        settings.transactional_id,
        int(settings.starts_at * 1000),
        settings.seconds,
        settings.records,
        settings.value_size,
        settings.partitions,
    )
    command = ["java", "-XX:+UseSerialGC", "-cp", settings.java_classpath, JAVA_SOURCE, *map(str, arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(output.splitlines()[-1])
