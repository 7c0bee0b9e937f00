"""Topics that check schema ids: a broker refuses records without an id of the topic's subject."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from penstock import Admin, Avro, Consumer, Producer, ResourceType
from penstock.arrow import WriteFailed, write_table
from penstock.broker.apis.schema_validation import SchemaValidation
from penstock.client.errors import ClientError
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.serializers import Context
from penstock.settings.schema_validation import SchemaValidationSettings
from penstock.settings.topic import TopicSettings
from penstock.testing.nodes import start_node
from registry_server import FakeRegistry, fake_registry

VALUE = {"confluent.value.schema.validation": "true"}
KEY = {"confluent.key.schema.validation": "true"}
NUMBER = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as started:
        yield started


@pytest.fixture(scope="module")
def bootstrap(registry: FakeRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    properties = {"confluent.schema.registry.url": registry.url}
    with start_node(tmp_path_factory.mktemp("validating") / "node", properties=properties) as node:
        yield node.bootstrap


def send(bootstrap: str, topic: str, value: Any, *, key: Any = None, serializer: Any = None) -> None:
    with Producer(bootstrap, value=serializer, delivery_timeout=10) as producer:
        producer.send(topic, value, key=key).result()


def write(bootstrap: str, topic: str, *values: bytes, key: bytes | None = None) -> None:
    """By our own client, which tells what the broker says of each record."""
    columns = {"value": pa.array(values, pa.binary()), "key": pa.array([key] * len(values), pa.binary())}
    write_table(bootstrap, topic, pa.table(columns))


@pytest.mark.parametrize("compression", ["producer", "zstd"])
def test_values(bootstrap: str, registry: FakeRegistry, compression: str) -> None:
    topic = f"values-{compression}"
    avro = Avro(NUMBER, registry=registry.url)
    by_header = Avro(NUMBER, registry=registry.url, schema_id="header")
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=1, configs={**VALUE, "compression.type": compression})
        for bad, problem in (
            (b"plain text", "the value has no schema id"),
            (b"\0\0\0", "the value has no schema id"),
            (b"\0\0\0\0\x63xyz", f"the value has the schema id 99, which is not of the subject {topic}-value"),
        ):
            with pytest.raises(WriteFailed, match=f"row 0 is refused: {problem}"):
                write(bootstrap, topic, bad)
        with pytest.raises(ClientError) as caught:
            send(bootstrap, topic, b"plain text")
        assert caught.value.code == "INVALID_RECORD"
        send(bootstrap, topic, {"n": 1}, serializer=avro)
        send(bootstrap, topic, None, key=b"k")  # a tombstone
        send(bootstrap, topic, {"n": 2}, serializer=by_header)

        # An id of another subject is not one of this topic. The batch is refused whole.
        other, _ = Avro({**NUMBER, "name": "O"}, registry=registry.url).prepare(f"other-{compression}")
        good = avro.serialize({"n": 3}, Context(topic, False))
        assert good is not None
        with pytest.raises(WriteFailed, match=f"row 1 is refused: the value has the schema id {other.id}, which is"):
            write(bootstrap, topic, good, b"\0" + other.id.to_bytes(4, "big") + b"\x02")

        with Consumer(bootstrap, topic, value=avro) as consumer:
            assert [record.value for record in islice(consumer, 3)] == [{"n": 1}, None, {"n": 2}]
        asked = len(registry.requests)
        send(bootstrap, topic, {"n": 3}, serializer=avro)
        assert len(registry.requests) == asked  # the broker knows the id

        admin.configs.alter(ResourceType.TOPIC, topic, {"confluent.value.schema.validation": "false"})
        send(bootstrap, topic, b"plain text")


def test_keys(bootstrap: str, registry: FakeRegistry) -> None:
    with Admin(bootstrap) as admin:
        admin.topics.create("keys", partitions=1, configs=KEY)
    with pytest.raises(WriteFailed, match="the key has no schema id"):
        write(bootstrap, "keys", b"anything", key=b"k")
    write(bootstrap, "keys", b"anything")
    with Producer(bootstrap, key=Avro('"string"', registry=registry.url)) as producer:
        producer.send("keys", b"anything", key="k").result()


def test_a_registry_that_is_down() -> None:
    """Refused with an error that clients retry; the registry is not asked for every batch."""
    with fake_registry() as gone:
        settings = SchemaValidationSettings(confluent_schema_registry_url=gone.url)
    clock = [0.0]
    validation = SchemaValidation(settings, lambda: clock[0])
    batch = build_batch([(0, None, b"\0\0\0\0\x01x", ())])
    topic_settings = TopicSettings(confluent_value_schema_validation=True)
    for _ in range(2):
        with pytest.raises(KafkaError, match="Connection refused") as caught:
            validation.check("t", bytearray(batch), read_header(batch), topic_settings, max_size=1 << 20)
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION


def test_a_broker_without_a_registry_says_so(broker: Any, unique_topic: Any) -> None:
    topic = unique_topic("no-registry")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(topic, partitions=1, configs=VALUE)
    with pytest.raises(KafkaError, match=r"no confluent\.schema\.registry\.url"):
        write(broker.bootstrap, topic, b"\0\0\0\0\x01x")


def test_a_registry_that_hangs_keeps_no_thread_from_other_work(tmp_path: Path) -> None:
    """More producers wait for the registry than the broker has threads; a batch that another topic decodes does not."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent, ExitStack() as stack:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        node = stack.enter_context(start_node(tmp_path / "node", properties={"confluent.schema.registry.url": url}))
        with Admin(node.bootstrap) as admin:
            admin.topics.create("checked", partitions=1, configs=VALUE)
            admin.topics.create("other", partitions=1, configs={"compression.type": "gzip"})
        outcomes: list[Any] = []
        for number in range(24):
            waiting = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
            stack.callback(waiting.flush)
            stack.callback(waiting.purge)
            value = b"\0\0\0\0" + bytes([number]) + b"x"
            waiting.produce("checked", value, on_delivery=lambda error, message: outcomes.append(error))
        stack.enter_context(silent.accept()[0])  # the registry is being asked, and says nothing
        with Producer(node.bootstrap) as producer:
            producer.send("other", b"text").result()
        assert outcomes == []
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):  # it is still the first question that waits
            stack.enter_context(silent.accept()[0])
