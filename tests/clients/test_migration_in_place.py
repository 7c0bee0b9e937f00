"""The log directories of a stopped node of Apache Kafka are opened by Penstock, in place, and the reverse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import confluent_kafka
import pytest

from apache_kafka import CLUSTER_ID, KafkaNode
from clients.librdkafka import close
from migration_cluster import KAFKA, Migration
from migration_world import Load, Transactions
from narrowing import present
from penstock.client.wire.admin import Admin
from penstock.client.wire.partition_log import PartitionLog
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition

RELEASE = "4.3.1"

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("apache-kafka")]


def twin(kafka: KafkaNode, directory: Path, extra: Mapping[str, str] | None = None) -> LocalNode:
    """A node of Penstock with the settings, and so with the directories, of a node of Kafka."""
    wanted = {**kafka.properties, **(extra or {})}
    directory.mkdir(exist_ok=True)
    return LocalNode(
        kafka.node_id, str(directory), host="127.0.0.1", port=kafka.port, roles=kafka.roles, properties=wanted
    )


def write(bootstrap: str, numbers: Sequence[int]) -> None:
    """To `orders` and, by ten keys, to `state`; and to `orders` in two transactions, of which one is aborted."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce("orders", str(number), partition=0)
        producer.produce("state", str(number), key=str(number % 10), partition=0)
    assert producer.flush(60) == 0
    transactional = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    transactional.init_transactions(60)
    for is_kept in (False, True):
        transactional.begin_transaction()
        transactional.produce("orders", "kept" if is_kept else "aborted", partition=1)
        transactional.flush(60)
        if is_kept:
            transactional.commit_transaction(60)
        else:
            transactional.abort_transaction(60)


def read_in_group(bootstrap: str, count: int) -> list[str]:
    """The next that the group has not read, which it commits."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(["orders"])
    found: list[str] = []
    while len(found) < count:
        messages = [each for each in consumer.consume(count - len(found), 1.0) if each.error() is None]
        found += [present(each.value()).decode() for each in messages]
    consumer.commit(asynchronous=False)
    close(consumer)
    return sorted(found)


def last_values(bootstrap: str) -> dict[bytes, bytes]:
    with PartitionLog(bootstrap, TopicPartition("state", 0)) as log:
        return {bytes(record.key or b""): bytes(record.value or b"") for record in log.read()}


def use(bootstrap: str, numbers: range) -> None:
    """What was written before is there, and the group continues behind it."""
    write(bootstrap, numbers)
    assert read_in_group(bootstrap, len(numbers) + 1) == sorted([*map(str, numbers), "kept"])
    with PartitionLog(bootstrap, TopicPartition("orders", 0)) as log:
        assert [int(record.value or b"-1") for record in log.read()] == list(range(numbers.stop))
    expected = {b"%d" % (number % 10): b"%d" % number for number in range(numbers.stop)}
    assert last_values(bootstrap) == expected


@pytest.mark.timeout(600)  # three starts of a JVM, on a machine at its limit
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_one_directory_is_opened_by_either(tmp_path: Path, how: str) -> None:
    port, controller_port = free_ports(2)
    kafka = KafkaNode(
        1,
        tmp_path / "kafka",
        version=RELEASE,
        port=port,
        controller_port=controller_port,
        properties={"metadata.log.max.record.bytes.between.snapshots": "2000"},
    )
    penstock = twin(kafka, tmp_path / "penstock")

    def end(node: KafkaNode | LocalNode) -> None:
        node.stop() if how == "stopped" else node.kill()

    try:
        kafka.format(CLUSTER_ID, "--standalone")
        kafka.start()
        kafka.wait_ready()
        with Admin(kafka.bootstrap, timeout=30.0) as admin:
            admin.topics.create("orders", partitions=2, replication_factor=1)
            admin.topics.create("state", partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
            before = {topic.name: topic.topic_id for topic in admin.topics.list(internal=True)}
        use(kafka.bootstrap, range(100))
        end(kafka)

        penstock.start()
        penstock.wait_ready(90)
        use(kafka.bootstrap, range(100, 200))
        with Admin(kafka.bootstrap, timeout=30.0) as admin:
            assert admin.cluster.describe().cluster_id == CLUSTER_ID
            assert {topic.name: topic.topic_id for topic in admin.topics.list(internal=True)}.items() >= before.items()
            admin.topics.create("of-penstock", partitions=1, replication_factor=1)
        end(penstock)

        kafka.start()
        kafka.wait_ready()
        use(kafka.bootstrap, range(200, 300))
        with Admin(kafka.bootstrap, timeout=30.0) as admin:
            assert "of-penstock" in {topic.name for topic in admin.topics.list()}
    finally:
        if penstock.running:
            penstock.kill()
        if kafka.running:
            kafka.kill()


@pytest.mark.timeout(600)  # as above
def test_a_directory_that_penstock_has_made_is_opened_by_kafka(tmp_path: Path) -> None:
    """With the feature levels of its release; those of 4.4, which are Penstock's own, it refuses."""
    for level in ("4.3", None):
        port, controller_port = free_ports(2)
        kafka = KafkaNode(1, tmp_path / f"kafka-{level}", version=RELEASE, port=port, controller_port=controller_port)
        kafka.directory.mkdir()
        penstock = twin(kafka, tmp_path / f"penstock-{level}")
        penstock.write_properties()
        levels = ["--release-version", level] if level else []
        command = [sys.executable, "-m", "penstock", "format", penstock.properties_path, "--cluster-id", CLUSTER_ID]
        subprocess.run([*command, *levels], check=True, capture_output=True)
        try:
            penstock.start()
            penstock.wait_ready(90)
            with Admin(kafka.bootstrap, timeout=30.0) as admin:
                admin.topics.create("orders", partitions=2, replication_factor=1)
                admin.topics.create("state", partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
            use(kafka.bootstrap, range(100))
            penstock.stop()
            kafka.start()
            if level is None:
                assert kafka.process is not None
                assert kafka.process.wait(120) != 0 and "No MetadataVersion with feature level" in kafka.log_text()
                continue
            kafka.wait_ready()
            use(kafka.bootstrap, range(100, 200))
            kafka.stop()
            penstock.start()
            penstock.wait_ready(90)
            use(kafka.bootstrap, range(200, 300))
        finally:
            if penstock.running:
                penstock.kill()
            if kafka.running:
                kafka.kill()


@pytest.mark.timeout(1800)
def test_three_nodes_change_their_software_one_by_one(tmp_path: Path) -> None:
    """Each keeps its id, its directories and its vote; the cluster is used meanwhile."""
    world = Migration(tmp_path, RELEASE, secure=False)
    twins = {node_id: twin(world.kafka[node_id], tmp_path / f"twin-{node_id}") for node_id in KAFKA}
    try:
        world.start_kafka()
        with world.admin() as admin:
            admin.topics.create("orders", partitions=3, replication_factor=3)
            admin.topics.create("ledger", partitions=2, replication_factor=3)
        with (
            Load(world.bootstrap, "orders", 3, rate=60.0) as load,
            Transactions(world.bootstrap, "ledger", 2) as transactions,
        ):

            def settle(name: str) -> None:
                world.wait_in_sync()
                load.wait_for_more()
                transactions.wait_for_more()
                print(f"{name}: {load.step()}, transaction {transactions.step():.1f} s", flush=True)

            settle("Kafka alone")
            for node_id in KAFKA:
                world.kafka[node_id].stop()
                twins[node_id].start()
                twins[node_id].wait_ready(120)
                settle(f"node {node_id} is Penstock")
            for node_id in KAFKA:
                twins[node_id].stop()
                world.kafka[node_id].start()
                world.kafka[node_id].wait_ready()
                settle(f"node {node_id} is Kafka again")
        load.check(world.bootstrap)
        transactions.check()
    finally:
        for each in twins.values():
            if each.running:
                each.kill()
        world.stop()
