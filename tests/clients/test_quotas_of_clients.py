"""Clients with quotas: they see that they are throttled, wait, and lose nothing; Kafka's own kafka-configs."""

from __future__ import annotations

import asyncio
import re
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer

from clients.drivers.kafka_python import KafkaConsumer, KafkaProducer, TopicPartition
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import RunningNode, start_node
from spark.connector_jars import broker_jars

RATE = 40_000  # bytes a second, with a window of one second
RECORDS, SIZE = 30, 4_000  # three times the window
VALUES = [f"{number:04d}".encode() + b"x" * SIZE for number in range(RECORDS)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {"quota.window.num": "2", "penstock.metrics.listener": "127.0.0.1:0"}
    with start_node(tmp_path_factory.mktemp("quotas") / "node", properties=properties) as node:
        yield node


@pytest.fixture
def admin(node: RunningNode) -> Iterator[Admin]:
    with Admin(node.bootstrap) as admin:
        yield admin


@pytest.fixture
def limited(admin: Admin) -> str:
    """A client id that may produce and fetch at the rate."""
    name = f"limited-{uuid.uuid4().hex[:8]}"
    admin.quotas.alter({"client-id": name}, {"producer_byte_rate": RATE, "consumer_byte_rate": RATE})
    return name


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"quotas-{uuid.uuid4().hex[:8]}"
    admin.topics.create(name)
    return name


def throttled(node: RunningNode, resource: str) -> int:
    """How many requests were throttled so far."""
    address = re.findall(r"metrics at (\S+/metrics)", node.log_text())[-1]
    with urllib.request.urlopen(address, timeout=20) as page:
        text = page.read().decode()
    return int(re.findall(rf'penstock_throttled_requests_total{{resource="{resource}"}} (\d+)', text)[0])


def fill(node: RunningNode, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_confluent_kafka_calls_back(node: RunningNode, limited: str, topic: str) -> None:
    told: dict[str, list[float]] = {"producer": [], "consumer": []}
    # Small batches: the first request must not be all there is.
    settings: dict[str, Any] = {"bootstrap.servers": node.bootstrap, "client.id": limited}
    producer = Producer(
        {
            **settings,
            "batch.size": 10_000,
            "max.in.flight": 1,
            "throttle_cb": lambda event: told["producer"].append(event.throttle_time),
        }
    )
    failed = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []
    assert any(seconds > 0 for seconds in told["producer"]), "it saw the throttle time"

    consumer = Consumer(
        {
            **settings,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "throttle_cb": lambda event: told["consumer"].append(event.throttle_time),
        }
    )
    consumer.subscribe([topic])
    before = throttled(node, "Fetch")
    found: list[bytes | None] = []
    while len(found) < RECORDS:
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        found.append(message.value())
    consumer.close()
    assert found == VALUES
    assert throttled(node, "Fetch") > before
    assert any(seconds > 0 for seconds in told["consumer"]), "it saw the throttle time"


def test_kafka_python(node: RunningNode, limited: str, topic: str) -> None:
    before = throttled(node, "Produce")
    producer = KafkaProducer(bootstrap_servers=node.bootstrap, client_id=limited, batch_size=10_000)
    sent = [producer.send(topic, value) for value in VALUES]
    assert [each.get(60).offset for each in sent] == list(range(RECORDS))
    producer.close()
    assert throttled(node, "Produce") > before
    before = throttled(node, "Fetch")
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, client_id=limited)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[bytes] = []
    while len(found) < RECORDS:
        for records in consumer.poll(timeout_ms=60_000).values():
            found += [record.value for record in records]
    consumer.close()
    assert found == VALUES
    assert throttled(node, "Fetch") > before


def test_aiokafka(node: RunningNode, limited: str, topic: str) -> None:
    async def roundtrip() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=node.bootstrap, client_id=limited, max_batch_size=10_000)
        await producer.start()
        for value in VALUES:
            await producer.send(topic, value)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=node.bootstrap, client_id=limited, auto_offset_reset="earliest"
        )
        await consumer.start()
        found = [(await consumer.getone()).value for _ in range(RECORDS)]
        await consumer.stop()
        return found

    produced, fetched = throttled(node, "Produce"), throttled(node, "Fetch")
    assert asyncio.run(asyncio.wait_for(roundtrip(), 90)) == VALUES
    assert throttled(node, "Produce") > produced
    assert throttled(node, "Fetch") > fetched


def kafka_configs(node: RunningNode, *arguments: str) -> str:
    command = ["java", "-cp", ":".join(broker_jars()), "kafka.admin.ConfigCommand"]
    outcome = subprocess.run(
        [*command, "--bootstrap-server", node.bootstrap, *arguments], capture_output=True, text=True, timeout=120
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


@pytest.mark.soak  # Maven finds the jars of kafka-configs, and three JVMs start
@pytest.mark.timeout(600)
def test_kafka_configs(node: RunningNode, admin: Admin) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    alter = ["--alter", "--entity-type", "users", "--entity-name", user]
    assert "Completed updating config" in kafka_configs(
        node, *alter, "--entity-type", "clients", "--entity-default", "--add-config", "producer_byte_rate=1024"
    )
    (found,) = admin.quotas.describe({"user": user})
    assert (found.entity, found.values) == ({"client-id": None, "user": user}, {"producer_byte_rate": 1024.0})
    described = kafka_configs(
        node, "--describe", "--entity-type", "users", "--entity-name", user, "--entity-type", "clients",
        "--entity-default",
    )  # fmt: skip
    assert "producer_byte_rate=1024.0" in described
    removed = ["--entity-type", "clients", "--entity-default", "--delete-config", "producer_byte_rate"]
    kafka_configs(node, *alter, *removed)
    assert admin.quotas.describe({"user": user}) == []
