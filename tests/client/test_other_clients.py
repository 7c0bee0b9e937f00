"""Keys and values pass between our clients and others, in both directions and bit by bit."""

from __future__ import annotations

import json
import struct
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import confluent_kafka
import fastavro
import pytest
from confluent_kafka import serialization

from client_world import NewTopic
from narrowing import present
from penstock import Avro, Consumer, Float32, Float64, Int32, Int64, Json, Producer, Record, String, Uuid
from penstock.client.librdkafka.partitioners import partition_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it loads its message schemas in a way Python has deprecated
    from kafka import KafkaConsumer, KafkaProducer

SCHEMA = {"type": "record", "name": "Truck", "fields": [{"name": "name", "type": "string"}]}


def avro(value: dict[str, Any]) -> bytes:
    import io

    body = io.BytesIO()
    fastavro.schemaless_writer(body, SCHEMA, value)
    return body.getvalue()


# Ours, a value, and the bytes of it as the other side makes them with its own means.
CASES: dict[str, tuple[Any, Any, Callable[[Any], bytes]]] = {
    "string": (String(), "déjà", lambda value: present(serialization.StringSerializer("utf_8")(value))),
    "int32": (Int32(), -77, lambda value: present(serialization.IntegerSerializer()(value))),
    "int64": (Int64(), 2**40, lambda value: value.to_bytes(8, "big", signed=True)),
    "float32": (Float32(), 0.25, lambda value: struct.pack("!f", value)),
    "float64": (Float64(), 0.1, lambda value: present(serialization.DoubleSerializer()(value))),
    "uuid": (Uuid(), uuid.UUID(int=7), lambda value: str(value).encode()),
    "json": (Json(), {"a": [1, "é"]}, lambda value: json.dumps(value).encode()),
    "avro": (Avro(SCHEMA), {"name": "T1"}, avro),
}


@pytest.mark.parametrize("case", CASES)
def test_confluent_kafka_reads_ours_and_we_read_its(case: str, bootstrap: str, new_topic: NewTopic) -> None:
    serde, value, theirs = CASES[case]
    topic = new_topic()
    with Producer(bootstrap, key=serde, value=serde) as producer:
        producer.send(topic, value, key=value, headers={"h": b"1"})
    client = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    client.produce(topic, theirs(value), theirs(value), headers={"h": b"1"})
    assert client.flush(60) == 0

    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    first = reader.poll(60)
    assert first is not None
    reader.close()
    assert first.headers() == [("h", b"1")]
    assert first.key() == first.value()
    if case != "json":  # of which there are many spellings
        assert first.value() == theirs(value)
    else:
        assert json.loads(present(first.value())) == value
    with Consumer(bootstrap, topic, key=serde, value=serde) as consumer:
        for _ in range(2):
            record = consumer.poll(60)
            assert record is not None
            assert (record.key, record.value, record.headers) == (value, value, [("h", b"1")])


def test_kafka_python_reads_ours_and_we_read_its(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=5)
    theirs = KafkaProducer(bootstrap_servers=bootstrap)
    for name, (serde, value, encode) in CASES.items():
        with Producer(bootstrap, key=String(), value=serde) as producer:
            ours = producer.send(topic, value, key=name, headers={"from": b"us"}).result()
        sent = theirs.send(topic, encode(value), key=name.encode(), headers=[("from", b"them")]).get(60)
        # Both put a key in the same place.
        assert ours.partition == sent.partition == partition_of(name.encode(), 5)
    theirs.close()

    reader = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    seen: dict[str, list[bytes]] = {}
    for message in reader:
        seen.setdefault(message.key.decode(), []).append(message.value)
        if sum(map(len, seen.values())) == 2 * len(CASES):
            break
    reader.close()
    with Consumer(bootstrap, topic, key=String()) as consumer:
        records: list[Record[str, bytes]] = []
        while len(records) < 2 * len(CASES):
            records += consumer.batch(10, 60)
    for name, (serde, value, _) in CASES.items():
        assert [serde.decode(data) for data in seen[name]] == [value, value]
        assert [serde.decode(record.value) for record in records if record.key == name] == [value, value]
