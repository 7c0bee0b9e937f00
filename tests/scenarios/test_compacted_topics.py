"""A compacted topic on a real broker: written by one client, compacted underneath, read by another."""

from __future__ import annotations

import os
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from narrowing import present
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

TOPIC = "compacted"
KEYS = 50
ROUNDS = 60
SEGMENT_BYTES = 1024 * 1024


def is_clean(node: RunningNode) -> bool:
    """Whether everything but the active segment has been compacted."""
    checkpoint = os.path.join(node.data_directory, "cleaner-offset-checkpoint")
    names = os.listdir(node.partition_directory(TOPIC))
    active = max(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))
    try:
        with open(checkpoint) as file:
            return f"{TOPIC} 0 {active}" in file.read().splitlines()
    except FileNotFoundError:
        return False


def everything_in(node: RunningNode) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[tuple[int, bytes, bytes | None]] = []
        while True:
            message = consumer.poll(30)
            assert message is not None, "no end of the partition within 30 s"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append((present(message.offset()), present(message.key()), message.value()))
    finally:
        consumer.close()


def test_a_reader_of_a_compacted_topic_gets_the_last_value_of_every_key(tmp_path: Path) -> None:
    with start_node(tmp_path / "node", properties={"log.cleaner.backoff.ms": "100"}) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result()
        last: dict[bytes, bytes | None] = {}
        producers = [
            Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "compression.type": codec})
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        ]
        for round_number in range(ROUNDS):
            producer = producers[round_number % len(producers)]
            for number in range(KEYS):
                key = b"key%d" % number
                last[key] = None if (number + round_number) % 7 == 0 else b"%d " % round_number + os.urandom(1000)
                producer.produce(TOPIC, key=key, value=last[key])
            producer.flush()
        wait_until(lambda: is_clean(node), lambda: f"clean: {os.listdir(node.partition_directory(TOPIC))}")

        compacted = everything_in(node)
        assert len(compacted) < KEYS * ROUNDS / 2
        assert {key: value for _, key, value in compacted} == last
        assert [offset for offset, _, _ in compacted] == sorted({offset for offset, _, _ in compacted})

        node.kill()
        node.start()
        assert {key: value for _, key, value in everything_in(node)} == last
        # The producers' sequences are still known: they go on where they were.
        for producer in producers:
            producer.produce(TOPIC, key=b"again", value=b"1")
            assert producer.flush(30) == 0
        last[b"again"] = b"1"
        assert {key: value for _, key, value in everything_in(node)} == last
