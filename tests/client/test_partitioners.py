"""Keys go where every other client puts them."""

from __future__ import annotations

import confluent_kafka
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_world import NewTopic
from narrowing import present
from penstock.client.librdkafka.partitioners import murmur2, partition_of

# Kafka's own, as signed 32 bits.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_murmur2_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == VECTORS[key] & 0xFFFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=64), st.integers(1, 1000))
def test_every_key_has_a_place(key: bytes, partitions: int) -> None:
    assert 0 <= murmur2(key) < 2**32
    assert 0 <= partition_of(key, partitions) < partitions


def test_librdkafka_agrees(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=7)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    placed: dict[bytes, int] = {}

    def on_delivery(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        placed[present(message.key())] = present(message.partition())

    keys = [b"x" * size + bytes([number]) for size in range(9) for number in (0, 1, 127, 128, 255)]
    for key in keys:
        producer.produce(topic, b"", key, on_delivery=on_delivery)
    assert producer.flush(60) == 0
    assert placed == {key: partition_of(key, 7) for key in keys}
