"""Values pass between Java's serializers and ours in both directions, and keys choose the same partitions."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import pytest

from clients import contract
from clients.drivers import DEADLINE_S
from clients.drivers.java import JavaClient
from penstock import Bytes, Consumer, Float32, Float64, Int32, Int64, Producer, String, Uuid
from penstock.serializers import Serde

PARTITIONS = 7


class Format(NamedTuple):
    ours: Serde[Any]
    parse: Callable[[str], Any]
    texts: list[str]
    """Of values, as Java's parse them too."""


def float32(text: str) -> float:
    return ctypes.c_float(float(text)).value


def latin_1(text: str) -> bytes:
    return text.encode("latin-1")


STRINGS = ["", "plain", "déjà vu", "Ω≠ß", "日本語", "🚚 e\u0301", "\0\n\u007f\uffff"]
NOT_NUMBERS = ["NaN", "Infinity", "-Infinity"]
FLOATS = ["0.0", "-0.0", "1.0", "-2.5", "0.1", "3.4028235E38", "-3.4028235E38", "1.4E-45", *NOT_NUMBERS]
DOUBLES = ["0.0", "-0.0", "0.1", "-1.7976931348623157E308", "1.7976931348623157E308", "4.9E-324", *NOT_NUMBERS]
UUIDS = [str(uuid.UUID(int=number)) for number in (0, 1, 0x0123456789ABCDEF << 60, 2**127, 2**128 - 1)]

# By the names of Java's serializers.
FORMATS = {
    "String": Format(String(), str, STRINGS),
    "Integer": Format(Int32(), int, [str(n) for n in (0, 1, -1, 258, 2**31 - 1, -(2**31))]),
    "Long": Format(Int64(), int, [str(n) for n in (0, 1, -1, -(2**31) - 1, 2**63 - 1, -(2**63))]),
    "Float": Format(Float32(), float32, FLOATS),
    "Double": Format(Float64(), float, DOUBLES),
    "UUID": Format(Uuid(), uuid.UUID, UUIDS),
    "ByteArray": Format(Bytes(), latin_1, ["", "\0", "bytes", bytes(range(256)).decode("latin-1")]),
}


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[JavaClient]:
    with closing(JavaClient(bootstrap)) as client:
        yield client


def read(bootstrap: str, topic: str, count: int, serde: Serde[Any]) -> list[tuple[str, Any]]:
    with Consumer(bootstrap, topic, key=String(), value=serde) as consumer:
        return [(record.key, record.value) for record in islice(consumer.records(idle=DEADLINE_S), count)]


@pytest.mark.parametrize("name", FORMATS)
def test_values(bootstrap: str, client: JavaClient, new_topic: contract.NewTopic, name: str) -> None:
    ours, parse, some_texts = FORMATS[name]
    texts = [*some_texts, None]
    values = [None if text is None else parse(text) for text in texts]
    count = len(values)
    our_topic, java_topic = new_topic(), new_topic()

    with Producer(bootstrap, key=String(), value=ours) as producer:
        for value in values:
            producer.send(our_topic, value, key=name)
    answer = client.call("read_as", topic=our_topic, format=name, count=count, timeoutMs=int(DEADLINE_S * 1000))
    java_read = [(key, None if text is None else parse(text)) for key, text in answer]
    expected = [(name, value) for value in values]
    assert repr(java_read) == repr(expected)  # which tells -0.0 from 0.0, and takes NaN for NaN

    client.call("write_as", topic=java_topic, format=name, records=[(name, text) for text in texts])
    assert repr(read(bootstrap, java_topic, count, ours)) == repr(expected)
    assert read(bootstrap, java_topic, count, Bytes()) == read(bootstrap, our_topic, count, Bytes())


def test_keys_choose_the_same_partitions(bootstrap: str, client: JavaClient, new_topic: contract.NewTopic) -> None:
    keys = [*STRINGS, *UUIDS, *("x" * length for length in range(1, 10)), *(f"key-{n}" for n in range(100))]
    topic = new_topic(partitions=PARTITIONS)
    java_partitions = client.call("write_as", topic=topic, format="String", records=[(key, "") for key in keys])
    with Producer(bootstrap, key=String(), value=String()) as producer:
        deliveries = [producer.send(topic, "", key=key) for key in keys]
        our_partitions = [delivery.result().partition for delivery in deliveries]
    assert dict(zip(keys, our_partitions, strict=True)) == dict(zip(keys, java_partitions, strict=True))
    assert set(our_partitions) == set(range(PARTITIONS))
