"""Read, process, write on clusters that are hurt: what comes of every record is there exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from chaos.group_faults import INTERNAL_PARTITIONS, PROPERTIES
from chaos.transaction_faults import FAULTS, PROTOCOLS, TransactionScene, is_all_decided
from chaos.workload import Writer
from penstock.broker.coordinators.internal_topics import CONSUMER_OFFSETS
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS = 4
SOURCE, TARGET = "source", "target"


def campaign(cluster: RunningCluster, protocol: str, sizes: list[int], faults: list[str], seed: int) -> None:
    """Each fault comes with a group of the next size."""
    for topic in (SOURCE, TARGET):
        cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    writer = Writer(
        cluster.bootstrap,
        SOURCE,
        PARTITIONS,
        {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 120_000, "request.timeout.ms": 3000},
        payload=b"x" * 20,
        records_a_second=500,
    )
    writer.start()
    scene = TransactionScene(cluster, writer, SOURCE, TARGET, "workers", protocol, random.Random(seed))
    try:
        for size, fault in zip(sizes, faults, strict=True):
            began = time.monotonic()
            scene.resize(size)
            scene.progress()
            FAULTS[fault](scene)
            scene.whole()
            print(f"{size} workers, {fault}: {time.monotonic() - began:.1f} s, {dict(scene.counts)}")
        writer.stop()
        assert not writer.failures
        scene.catch_up()
        scene.resize(0)
    finally:
        writer.abandon()
        scene.end()
    print(scene.reasons.most_common())
    topics = {TARGET: PARTITIONS, CONSUMER_OFFSETS: INTERNAL_PARTITIONS}
    cluster.wait_until(lambda: is_all_decided(cluster.bootstrap, topics), "the end of all transactions")
    found = Counter(read_committed(cluster.bootstrap, TARGET))
    twice = [number for number, count in found.items() if count > 1]
    assert not twice, f"{len(twice)} were written more than once: {sorted(twice)[:5]}"
    missing = writer.acknowledged.keys() - found.keys()
    assert not missing, f"{len(missing)} are missing: {sorted(missing)[:5]}"
    assert len(found) == writer.sent


def read_committed(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[int] = []
    at_end: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        deadline = time.monotonic() + 60
        while len(at_end) < PARTITIONS:
            assert time.monotonic() < deadline, f"of {PARTITIONS} partitions only {at_end} were read to their ends"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found.append(int(message.value().split(b":", 1)[0]))
                else:
                    at_end.add(message.partition())
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    ("protocol", "sizes", "faults"),
    [("consumer", [2, 1], ["zombie", "kill_transaction_coordinator"])],
)
def test_workers(tmp_path: Path, protocol: str, sizes: list[int], faults: list[str]) -> None:
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, protocol, sizes, faults, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(2))
def test_many_faults(tmp_path: Path, protocol: str, seed: int) -> None:
    rng = random.Random(seed)
    faults = [fault for _ in range(4) for fault in rng.sample(sorted(FAULTS), len(FAULTS))]
    sizes = [rng.randint(1, 4) for _ in faults]
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, protocol, sizes, faults, seed)
