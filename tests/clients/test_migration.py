"""`penstock migrate` on real processes: a cluster of Apache Kafka becomes one of Penstock, and goes back, under load,
while a node of each kind is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from apache_kafka import KafkaNode
from migration_cluster import CLUSTER_ID, features_of, penstock_node
from migration_world import Load, log_bytes, migrate, wait_in_sync
from penstock.client.wire.admin import Admin
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports

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
