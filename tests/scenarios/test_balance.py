"""`penstock cluster balance` and `drain` on four brokers, as processes, while records are written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from penstock.client.wire.admin import Admin, ResourceType
from penstock.testing.clusters import RunningCluster, start_cluster
from steady_load import Load, numbers
from waiting import wait_until

if TYPE_CHECKING:
    from conftest import CommandLine

PARTITIONS = 6
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    # Followers fetch little at a time, so that a throttle is felt.
    properties = {"replica.fetch.max.bytes": "20000", "replica.fetch.response.max.bytes": "20000"}
    directory = tmp_path_factory.mktemp("cluster")
    with start_cluster(directory, brokers=4, controllers=1, properties=properties) as cluster:
        with cluster.admin() as admin:
            # As if broker 4 were new, and broker 1 the leader of too many.
            admin.topics.create("orders", assignment=[[1, 2], [1, 3], [1, 2], [1, 3], [2, 3], [1, 2]])
        cluster.wait_for_isr("orders")
        yield cluster


def replicas(cluster: RunningCluster) -> list[tuple[int, ...]]:
    return [each.replicas for each in cluster.describe("orders").partitions]


def throttles(admin: Admin) -> list[tuple[str, str]]:
    found = [
        (str(broker.broker_id), entry.name)
        for broker in admin.cluster.describe().brokers
        for entry in admin.configs.describe(ResourceType.BROKER, str(broker.broker_id))
        if entry.name in RATES and entry.source == "DYNAMIC_BROKER_CONFIG"
    ]
    found += [
        ("orders", entry.name)
        for entry in admin.configs.describe(ResourceType.TOPIC, "orders")
        if entry.name in REPLICAS and entry.value
    ]
    return found


def test_an_interrupted_balance_leaves_the_cluster_whole(cluster: RunningCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": 10_000})
    for number in range(400):
        producer.produce("orders", b"x" * 5000, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    before = replicas(cluster)
    command = [sys.executable, "-m", "penstock", "cluster", "balance", "-b", cluster.bootstrap]
    command += ["--yes", "--throttle", "1k", "--at-once", "1"]
    moving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with cluster.admin() as admin:
        wait_until(lambda: admin.reassignments.list(), "a partition moves")
        wait_until(lambda: {name for _, name in throttles(admin)} == {*RATES, *REPLICAS}, "throttles are set")
        moving.send_signal(signal.SIGTERM)  # like Ctrl-C, which programs in the background may ignore
        _, err = moving.communicate(timeout=60)
        assert moving.returncode == 1
        assert "penstock: interrupted: 0 partitions were copied, 1 taken back" in err
        wait_until(lambda: not throttles(admin), "throttles are removed")
        assert not admin.reassignments.list()
    assert [set(each) for each in replicas(cluster)] == [set(each) for each in before]


def test_a_new_broker_is_filled_and_emptied_while_records_are_written(
    cluster: RunningCluster, cli: CommandLine
) -> None:
    with cluster.admin() as admin:
        admin.topics.create("load", assignment=[[1, 2, 3]] * 3)
    cluster.wait_for_isr("load")

    where = ["-b", cluster.bootstrap]
    shown = cli("cluster", "balance", *where)
    assert shown.status == 0
    assert "partitions are copied" in shown.out
    assert "--yes makes these moves" in shown.err
    assert 4 not in {replica for each in replicas(cluster) for replica in each}
    load = Load(cluster.bootstrap, "load", 3)
    wait_until(lambda: len(load.acknowledged) > 50, "records are written")
    done = cli("cluster", "balance", *where, "--yes", "--throttle", "20m")
    assert done.status == 0, done.err

    def is_even() -> bool:
        placed = [each for topic in ("orders", "load") for each in cluster.describe(topic).partitions]
        counts = Counter(replica for each in placed for replica in each.replicas)
        leaders = Counter(each.leader for each in placed)
        return all(max(each.values()) - min(each[broker] for broker in (1, 2, 3, 4)) <= 2 for each in (counts, leaders))

    wait_until(is_even, "all brokers have replicas and leaders")
    again = cli("cluster", "balance", *where, "--json")
    # What is written meanwhile may tip the scales, by little.
    assert len(json.loads(again.out)) <= 2

    drained = cli("cluster", "drain", "4", *where, "--yes", "--throttle", "none")
    assert drained.status == 0, drained.err
    acknowledged = load.end()
    with cluster.admin() as admin:
        topics = admin.topics.list(internal=True)
        assert 4 not in {replica for topic in topics for each in topic.partitions for replica in each.replicas}
        wait_until(lambda: not throttles(admin), "throttles are removed")
        admin.topics.create("later", partitions=8, replication_factor=2)
        assert 4 not in {replica for each in cluster.describe("later").partitions for replica in each.replicas}
    assert cli("cluster", "drain", "4", *where, "--cancel").status == 0
    found = numbers(cluster.bootstrap, "load", 3, len(acknowledged))
    assert sorted(found) == sorted(acknowledged)


def test_what_cannot_be_planned(cluster: RunningCluster, cli: CommandLine) -> None:
    where = ["-b", cluster.bootstrap]
    assert "there is no broker 9" in cli("cluster", "drain", "9", *where).err
    with cluster.admin() as admin:
        admin.topics.create("everywhere", partitions=1, replication_factor=4)
    cluster.wait_for_isr("everywhere")
    refused = cli("cluster", "drain", "4", *where)
    assert refused.status == 1
    assert "everywhere-0 has 4 replicas, and only 3 brokers are left" in refused.err
    assert cli("cluster", "balance", *where, "--throttle", "fast").status == 1
    with cluster.admin() as admin:
        admin.topics.delete("everywhere")


def test_a_cluster_balances_itself(tmp_path: Path) -> None:
    properties = {"penstock.balance.interval.seconds": "1", "penstock.balance.max.moves": "2"}
    with start_cluster(tmp_path, brokers=3, controllers=1, properties=properties) as cluster, cluster.admin() as admin:
        admin.topics.create("orders", assignment=[[1, 2]] * 6)
        cluster.wait_for_isr("orders")
        load = Load(cluster.bootstrap, "orders", 6)
        wait_until(lambda: len(load.acknowledged) > 50, "records are written")
        assert Counter(replica for each in replicas(cluster) for replica in each) == {1: 6, 2: 6}, "moved unasked"
        admin.configs.alter(ResourceType.BROKER, "", {"penstock.balance.enable": "true"})

        def is_even() -> bool:
            copies = Counter(replica for each in replicas(cluster) for replica in each)
            preferred = Counter(each[0] for each in replicas(cluster))
            return all(
                max(each.values()) - min(each[broker] for broker in (1, 2, 3)) <= 1 for each in (copies, preferred)
            )

        wait_until(is_even, "all brokers have replicas, and are preferred as leaders", seconds=120)
        wait_until(lambda: not admin.reassignments.list(), "nothing moves any more", seconds=60)
        acknowledged = load.end()
        assert sorted(numbers(cluster.bootstrap, "orders", 6, len(acknowledged))) == sorted(acknowledged)
