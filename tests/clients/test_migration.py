"""`penstock migrate` on real processes: a cluster of Apache Kafka becomes one of Penstock, and goes back, under load,
while a node of each kind is killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from crc32c import crc32c

from apache_kafka import KafkaNode
from migration_cluster import CLUSTER_ID, features_of, penstock_node
from migration_world import Command, Load, log_bytes, migrate, refused, wait_in_sync
from penstock.client.wire.admin import Admin
from penstock.client.wire.partition_log import PartitionLog
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.migrate.markers import LEADER_RATE, LEADER_REPLICAS
from penstock.migrate.observe import observe
from penstock.model.ids import TopicPartition
from penstock.records.batch import CRC_START, iterate_headers
from waiting import wait_until

RELEASE = "4.3.1"
PENSTOCK, KAFKA = 11, 1

pytestmark = pytest.mark.xdist_group("apache-kafka")


@pytest.mark.timeout(600)  # two starts of a JVM, on a machine at its limit
def test_one_node_becomes_penstock_and_kafka_again(tmp_path: Path) -> None:
    kafka_port, kafka_controller, port, controller = free_ports(4)
    quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{kafka_controller},127.0.0.1:{controller}"}
    kafka = KafkaNode(
        KAFKA,
        tmp_path / "kafka",
        version=RELEASE,
        port=kafka_port,
        controller_port=kafka_controller,
        properties=quorum,
    )
    directory = tmp_path / "penstock"
    directory.mkdir()
    penstock: LocalNode | None = None
    both = f"{kafka.bootstrap},127.0.0.1:{port}"
    try:
        kafka.format(CLUSTER_ID, "--standalone", features=features_of(RELEASE))
        kafka.start()
        kafka.wait_ready()
        with Admin(kafka.bootstrap, timeout=30.0) as admin:
            admin.topics.create("orders", partitions=3, replication_factor=1)
            admin.topics.create("state", partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
        with Load(both, "orders", 3) as load:
            load.wait_for_more()
            assert "can be moved" in migrate("check", bootstrap=kafka.bootstrap)
            join = ["--node-id", str(PENSTOCK), "--host", "127.0.0.1", "--listener", f"PLAINTEXT:{port}"]
            join += ["--controller-port", str(controller), "--directory", str(directory / "data")]
            migrate("join", *join, "--output", str(directory / "server.properties"), bootstrap=kafka.bootstrap)
            penstock = penstock_node(directory, PENSTOCK, port)
            penstock.start()
            penstock.wait_ready(60)
            assert "orders" in migrate("move", "--dry-run", bootstrap=both)
            with Admin(both, timeout=30.0) as admin:
                admin.topics.create("pair", partitions=2, replication_factor=2)
            with Load(both, "pair", 2, rate=50.0) as pair:
                pair.wait_for_more()
                penstock.kill()
                penstock.start()
                penstock.wait_ready(60)
                wait_in_sync(both)
                kafka.kill()
                kafka.start()
                kafka.wait_ready()
                wait_in_sync(both)
                pair.wait_for_more()
            pair.check(both)
            for partition in range(2):
                ours = log_bytes(penstock.data_path, "pair", partition)
                assert ours and ours == log_bytes(kafka.data_directory, "pair", partition)
            with Admin(both, timeout=30.0) as admin:
                admin.topics.delete("pair")

            migrate("move", bootstrap=both)
            wait_in_sync(both, {"orders": [PENSTOCK], "__consumer_offsets": [PENSTOCK]})
            load.wait_for_more()
            assert "added voter 11" in migrate("controllers", "--to", str(PENSTOCK), bootstrap=both)
            load.wait_for_more()

            migrate("back", bootstrap=both)
            wait_in_sync(both, {"orders": [KAFKA], "__consumer_offsets": [KAFKA]})
            assert "added voter 1" in migrate("controllers", "--to", str(KAFKA), bootstrap=both)
            penstock.stop()
            assert "unregistered 11" in migrate("retire", str(PENSTOCK), bootstrap=kafka.bootstrap)
            load.wait_for_more()
        load.check(kafka.bootstrap)
        with Admin(kafka.bootstrap, timeout=30.0) as admin:
            assert [broker.broker_id for broker in admin.cluster.describe().brokers] == [KAFKA]
    finally:
        if penstock is not None:
            penstock.stop()
        kafka.stop()


# -- the command stopped, killed, refused, undone ----------------------------------------------------------------------

THROTTLE = 500_000  # the big topic takes twenty seconds
BIG, TRIMMED, STATE = "big", "trimmed", "state"
DELETED_TO, BIG_RECORDS = 60, 200


def write(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(100):
        producer.produce(TRIMMED, f"value {number}")
        producer.produce(STATE, str(number), key=f"key-{number % 10}")
        producer.flush(30)  # a batch for each
    for number in range(BIG_RECORDS):
        producer.produce(BIG, b"%d " % number * 10_000)
    assert producer.flush(60) == 0


def check_topics(bootstrap: str) -> None:
    with PartitionLog(bootstrap, TopicPartition(TRIMMED, 0)) as log:
        assert [bytes(each.value or b"") for each in log.read()] == [b"value %d" % each for each in range(60, 100)]
    with PartitionLog(bootstrap, TopicPartition(STATE, 0)) as log:
        found = {bytes(each.key or b""): bytes(each.value or b"") for each in log.read()}
    assert found == {b"key-%d" % each: b"%d" % (90 + each) for each in range(10)}
    with PartitionLog(bootstrap, TopicPartition(BIG, 0)) as log:
        assert [bytes(each.value or b"") for each in log.read()] == [
            b"%d " % each * 10_000 for each in range(BIG_RECORDS)
        ]


def change_last_value(segment: Path) -> None:
    """One byte, which no checksum betrays. A second time, it is as it was."""
    data = bytearray(segment.read_bytes())
    *_, (place, header) = iterate_headers(bytes(data))
    data[place + header.size - 2] ^= 1
    crc = crc32c(bytes(data[place + CRC_START : place + header.size]))
    data[place + CRC_START - 4 : place + CRC_START] = crc.to_bytes(4, "big")
    segment.write_bytes(data)


class Throttles(NamedTuple):
    rates: dict[int, int]
    noted: list[str]


def throttles(bootstrap: str) -> Throttles:
    with Admin(bootstrap, timeout=30.0) as admin:
        state = observe(admin)
        settings = admin.configs.of_topics([BIG, TRIMMED, STATE], [LEADER_REPLICAS])
    return Throttles(
        {each.broker_id: int(each.throttle[LEADER_RATE]) for each in state.brokers.values() if each.throttle},
        sorted(topic for topic, values in settings.items() if values.get(LEADER_REPLICAS)),
    )


def replicas(bootstrap: str) -> dict[str, tuple[int, ...]]:
    with Admin(bootstrap, timeout=30.0) as admin:
        return {topic.name: topic.partitions[0].replicas for topic in admin.topics.list()}


def is_copied(bootstrap: str, topic: str) -> bool:
    with Admin(bootstrap, timeout=30.0) as admin:
        (found,) = admin.topics.describe([topic])
        return set(found.partitions[0].isr) == {KAFKA, PENSTOCK} and topic not in {
            each.topic for each in admin.reassignments.list()
        }


@pytest.mark.timeout(600)  # as above
def test_what_is_not_proven_is_not_released_and_what_was_begun_is_continued_or_undone(tmp_path: Path) -> None:
    kafka_port, kafka_controller, port, controller = free_ports(4)
    kafka = KafkaNode(KAFKA, tmp_path / "kafka", version=RELEASE, port=kafka_port, controller_port=kafka_controller)
    directory = tmp_path / "penstock"
    directory.mkdir()
    penstock: LocalNode | None = None
    both = f"{kafka.bootstrap},127.0.0.1:{port}"
    log = tmp_path / "migrate.log"
    try:
        kafka.format(CLUSTER_ID, "--standalone", features=features_of(RELEASE))
        kafka.start()
        kafka.wait_ready()
        with Admin(kafka.bootstrap, timeout=30.0) as admin:
            for topic in (BIG, TRIMMED):
                admin.topics.create(topic, partitions=1, replication_factor=1)
            admin.topics.create(STATE, partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
            write(kafka.bootstrap)
            admin.topics.delete_records({TopicPartition(TRIMMED, 0): DELETED_TO})
        join = ["--node-id", str(PENSTOCK), "--host", "127.0.0.1", "--listener", f"PLAINTEXT:{port}"]
        join += ["--controller-port", str(controller), "--directory", str(directory / "data")]
        file = directory / "server.properties"
        written = migrate("join", *join, "--output", str(file), "--dry-run", bootstrap=kafka.bootstrap)
        assert not file.exists()
        migrate("join", *join, "--output", str(file), bootstrap=kafka.bootstrap)
        assert file.read_text() == written
        penstock = penstock_node(directory, PENSTOCK, port)
        penstock.start()
        penstock.wait_ready(60)

        # The node of Kafka does not know the address of the new controller.
        said = refused("controllers", "--to", str(PENSTOCK), bootstrap=both)
        assert f"broker 1 would not find the new quorum: add 127.0.0.1:{controller}" in said

        # Killed while it copies: what it began goes on, throttled, and nothing is released.
        with Command("move", "--throttle", str(THROTTLE), bootstrap=both, log=log) as move:
            move.wait_for("being copied")
            move.end(signal.SIGKILL)
        assert throttles(both) == Throttles({KAFKA: THROTTLE, PENSTOCK: THROTTLE}, [BIG, STATE, TRIMMED])
        wait_until(lambda: is_copied(both, TRIMMED) and is_copied(both, STATE), "the small topics to be copied")
        moving = json.loads(migrate("status", "--json", bootstrap=both))["moving"]
        assert moving["copied, not released"] >= 2 and moving["being copied"] + moving["copied, not released"] == 3
        assert set(replicas(both).values()) == {(KAFKA, PENSTOCK)}

        # A copy with one other byte is not released; everything else is, once it is compared.
        wait_until(lambda: is_copied(both, BIG), "the big topic to be copied", 120)
        penstock.stop()
        change_last_value(Path(penstock.data_path, f"{TRIMMED}-0", f"{DELETED_TO:020}.log"))
        penstock.start()
        penstock.wait_ready(60)
        said = refused("move", bootstrap=both)
        assert f"{TRIMMED}-0 on brokers {KAFKA} and {PENSTOCK} differ at offset 99" in said
        assert replicas(both) == {BIG: (PENSTOCK,), STATE: (PENSTOCK,), TRIMMED: (KAFKA, PENSTOCK)}
        assert f"took {TRIMMED}-0 back to {KAFKA}" in migrate("move", "--undo", bootstrap=both)
        assert replicas(both) == {BIG: (PENSTOCK,), STATE: (PENSTOCK,), TRIMMED: (KAFKA,)}
        assert throttles(both) == Throttles({}, [])
        check_topics(both)

        # The way back, stopped by Ctrl-C, and undone; then begun again, stopped, and continued.
        for rest in ("undo", "continue"):
            with Command("back", "--throttle", str(THROTTLE), bootstrap=both, log=log) as back:
                back.wait_for("being copied")
                back.end(signal.SIGINT)
                assert "Traceback" not in back.said()
            assert throttles(both) == Throttles({KAFKA: THROTTLE, PENSTOCK: THROTTLE}, [BIG, STATE])
            assert f"broker {PENSTOCK} holds 2 replicas" in refused("retire", str(PENSTOCK), bootstrap=both)
            if rest == "undo":
                migrate("move", "--undo", bootstrap=both)
                assert replicas(both) == {BIG: (PENSTOCK,), STATE: (PENSTOCK,), TRIMMED: (KAFKA,)}
            else:
                assert "were compared" in migrate("back", bootstrap=both)
                assert set(replicas(both).values()) == {(KAFKA,)}
            assert throttles(both) == Throttles({}, [])
        check_topics(both)
        assert f"broker {KAFKA} holds 3 replicas" in refused("retire", str(KAFKA), bootstrap=both)

        # A replica that comes while `retire` waits is not left behind.
        assert "would unregister 11" in migrate("retire", str(PENSTOCK), "--dry-run", bootstrap=both)
        with Command("retire", str(PENSTOCK), bootstrap=kafka.bootstrap, log=log) as retire:
            retire.wait_for("stop node 11 now")
            with Admin(both, timeout=30.0) as admin:
                admin.topics.create("late", assignment=[[PENSTOCK]])
            penstock.stop()
            assert retire.wait() != 0
            assert f"broker {PENSTOCK} holds 1 replicas, such as late-0" in retire.said()
        with Admin(kafka.bootstrap, timeout=30.0) as admin:
            assert PENSTOCK in {broker.broker_id for broker in admin.cluster.describe().brokers}
            for topic in (BIG, STATE, TRIMMED):
                admin.topics.delete(topic)
        assert f"node {KAFKA} is a voter" in refused("retire", str(KAFKA), bootstrap=kafka.bootstrap)
    finally:
        if penstock is not None:
            penstock.stop()
        kafka.stop()
