"""No client notices: clients of every kind use a cluster that moves from Apache Kafka to Penstock and back.

No node dies here, so that nothing but the move itself can be noticed. `test_migration_campaign.py` kills.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest

import migration_spark
from clients.librdkafka import close
from clients.streams_application import CLASSIC, STREAMS, Application, random_input
from connect_worker import TOPIC, ConnectWorker
from migration_cluster import Migration
from migration_witnesses import Witness
from narrowing import present
from penstock.client.wire.partition_log import PartitionLog
from penstock.model.ids import TopicPartition
from spark.connector_jars import connector_jars
from waiting import wait_until

RELEASE = "4.3.1"
# The writer, and the members that read what it writes, each in a group of its own.
CLIENTS = {
    "python": {
        "librdkafka": ["confluent", "confluent-cooperative", "confluent-consumer-protocol"],
        "kafka-python": ["kafka-python"],
        "aiokafka": ["aiokafka"],
    },
    "java-and-javascript": {"java": ["java", "java-consumer-protocol"], "kafkajs": ["kafkajs"]},
}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("apache-kafka"),
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Migration]:
    world = Migration(tmp_path, RELEASE, secure=False)
    try:
        world.start_kafka()
        yield world
    finally:
        world.stop()


def steps(world: Migration) -> Iterator[str]:
    for part in (world.there(kill=False), world.leave_kafka(kill=False), world.return_kafka(), world.back(kill=False)):
        yield from part


@pytest.mark.parametrize("kinds", list(CLIENTS))
def test_producers_and_groups(world: Migration, kinds: str) -> None:
    with world.admin() as admin:
        for topic in CLIENTS[kinds]:
            admin.topics.create(topic, partitions=1, replication_factor=3)
    witnesses = [Witness(world.bootstrap, writer, members) for writer, members in CLIENTS[kinds].items()]
    for witness in witnesses:
        witness.start()
    try:
        for name in itertools.chain(["Kafka alone"], steps(world)):
            longest = {witness.topic: f"{witness.wait_for_more():.1f}" for witness in witnesses}
            print(name, longest, flush=True)
    finally:
        for witness in witnesses:
            witness.stop()
    for witness in witnesses:
        witness.check(world.bootstrap)
        print(f"{witness.topic}: {witness.acknowledged} records, {witness.refused} commits refused")


def test_streams_exactly_once(world: Migration, tmp_path: Path) -> None:
    """Both group protocols, one application each; the output is what a plain computation over the input says."""
    settings = {"processing.guarantee": "exactly_once_v2", "num.stream.threads": "1", "commit.interval.ms": "500"}
    classic = {**CLASSIC, "session.timeout.ms": "30000", "heartbeat.interval.ms": "1000", **settings}
    with (
        closing(Application(world.bootstrap, "classic", tmp_path / "classic", classic)) as one,
        closing(Application(world.bootstrap, "streams", tmp_path / "streams", {**STREAMS, **settings})) as other,
    ):
        for application in (one, other):
            application.start()
        # Old records would be removed before they are read: brokers look for them every few minutes.
        start_ms = int(time.time() * 1000) - 60_000
        for number, name in enumerate(itertools.chain(["Kafka alone"], steps(world))):
            for application in (one, other):
                application.send(random_input(number, 60, start_ms))
            for application in (one, other):
                application.wait_for_output()
            print(name, flush=True)
        for application in (one, other):
            (instance,) = application.instances
            instance.wait_running()
            assert "ERROR" not in instance.states, instance.states


def test_spark_with_both_connectors(world: Migration, tmp_path: Path) -> None:
    """Both queries pass on every number; ours passes it on once, Spark's own promises no more than at least once."""
    jars = connector_jars()
    with world.admin() as admin:
        for topic in (migration_spark.SOURCE, *migration_spark.TARGETS.values()):
            admin.topics.create(topic, partitions=2, replication_factor=3)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": world.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    command = [sys.executable, migration_spark.__file__, world.bootstrap, str(tmp_path / "checkpoints"), ",".join(jars)]
    with open(tmp_path / "spark.log", "wb") as log:
        spark = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    numbers = 0
    try:
        for name in itertools.chain(["Kafka alone"], steps(world)):
            for _ in range(20):
                # To both: a reader whose partition gets nothing while brokers are replaced knows none of the new ones
                producer.produce(migration_spark.SOURCE, str(numbers), partition=numbers % 2)
                numbers += 1
            assert producer.flush(60) == 0
            for connector, target in migration_spark.TARGETS.items():

                def is_there(target: str = target, wanted: frozenset[int] = frozenset(range(numbers))) -> bool:
                    assert spark.poll() is None, (tmp_path / "spark.log").read_text()[-3000:]
                    return set(values_of(world.bootstrap, target)) == wanted

                wait_until(is_there, f"{numbers} numbers by {connector} after {name}", seconds=300)
            print(name, flush=True)
        assert spark.stdin is not None
        spark.stdin.close()
        assert spark.wait(120) == 0, (tmp_path / "spark.log").read_text()[-3000:]
    finally:
        spark.kill()
        spark.wait()
    written = {name: values_of(world.bootstrap, target) for name, target in migration_spark.TARGETS.items()}
    assert sorted(written["penstock"]) == list(range(numbers))
    print({name: f"{len(values)} of {numbers}" for name, values in written.items()})


def values_of(bootstrap: str, topic: str) -> list[int]:
    """What readers of committed records see."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "values",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(2)])
    found: list[int] = []
    ends = 0
    while ends < 2:
        message = consumer.poll(30.0)
        assert message is not None, f"{topic} has no end"
        error = message.error()
        if error is None:
            found.append(int(present(message.value())))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ends += 1
    close(consumer)
    return found


def test_connect(world: Migration, tmp_path: Path) -> None:
    """Lines of a file reach the topic once, and from there a file, in order."""
    with world.admin() as admin:
        admin.topics.create(TOPIC, partitions=1, replication_factor=3)
    numbers = 0
    with closing(ConnectWorker(world.bootstrap, tmp_path / "connect")) as worker:
        worker.start_connectors()
        for name in itertools.chain(["Kafka alone"], steps(world)):
            worker.append(range(numbers, numbers + 20))
            numbers += 20

            def is_copied(wanted: frozenset[int] = frozenset(range(numbers))) -> bool:
                return set(worker.copied()) == wanted

            wait_until(is_copied, f"{numbers} lines after {name}; {worker.failures()}", seconds=300)
            assert not worker.failures()
            print(name, flush=True)
        copied = worker.copied()
    with PartitionLog(world.bootstrap, TopicPartition(TOPIC, 0)) as log:
        assert [int(record.value or b"-1") for record in log.read()] == list(range(numbers))
    # A sink that restarts repeats what it had not committed.
    print(f"{len(copied)} of {numbers} lines in the file")
