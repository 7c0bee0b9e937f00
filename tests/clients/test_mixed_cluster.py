"""A cluster that stays mixed: two brokers of Apache Kafka and two of Penstock, two controllers and one, under load and
faults for half an hour (`MIXED_MINUTES` for another time)."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_directories import compare, read
from metadata_shell import compare_by_shell
from migration_cluster import Migration
from migration_world import LatestValues, Load, Transactions, log_bytes
from penstock.client.wire.admin import Admin, ResourceType
from penstock.model.ids import TopicPartition

RELEASE = "4.3.1"
MINUTES = float(os.environ.get("MIXED_MINUTES", "30"))
NODES = (1, 2, 11, 12)
STATE, STATE_REPLICAS = "state", [[2, 11, 12], [12, 1, 11]]
# Snapshots are images: many of them, and nothing of the log is removed.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20000", "metadata.max.retention.ms": "-1"}

pytestmark = pytest.mark.xdist_group("apache-kafka")


class Faults:
    def __init__(self, world: Migration, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._topics = 0
        self.counts: Counter[str] = Counter()

    def one(self) -> None:
        kinds: list[Callable[[int], None]] = [self.killed, self.stopped, self.paused, self.paused_for_long]
        node_id = self._chance.choice(NODES)
        fault = self._chance.choice(kinds)
        kind = "Kafka" if node_id in self._world.kafka else "Penstock"
        fault(node_id)
        self.counts[f"{fault.__name__} ({kind})"] += 1
        self._change()
        self._world.wait_in_sync()

    def killed(self, node_id: int) -> None:
        self._world.kill(node_id)

    def stopped(self, node_id: int) -> None:
        if node_id in self._world.kafka:
            node = self._world.kafka[node_id]
            node.stop()
            node.start()
            node.wait_ready()
        else:
            own = self._world.penstock[node_id]
            own.stop()
            own.start()
            own.wait_ready(120)

    def paused(self, node_id: int) -> None:
        self._pause(node_id, 2.0)

    def paused_for_long(self, node_id: int) -> None:
        """Longer than the session of a broker."""
        self._pause(node_id, 14.0)

    def _pause(self, node_id: int, seconds: float) -> None:
        process = (self._world.kafka.get(node_id) or self._world.penstock[node_id]).process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGCONT)

    def _change(self) -> None:
        """Something of the metadata, by whichever controller leads."""
        with self._world.admin() as admin:
            for _ in range(3):
                change = self._chance.choice([self._topic, self._setting, self._move])
                change(admin)
                self.counts[change.__name__.strip("_")] += 1

    def _topic(self, admin: Admin) -> None:
        self._topics += 1
        admin.topics.create(f"topic-{self._topics}", partitions=4, replication_factor=3)
        if self._topics > 3:
            admin.topics.delete(f"topic-{self._topics - 3}")

    def _setting(self, admin: Admin) -> None:
        value = str(self._chance.randrange(10**8, 10**9))
        admin.configs.alter(ResourceType.TOPIC, "orders", {"retention.bytes": value})

    def _move(self, admin: Admin) -> None:
        """Three of the four brokers, in any order."""
        partition = TopicPartition("orders", self._chance.randrange(3))
        admin.reassignments.begin({partition: tuple(self._chance.sample(NODES, 3))})
        deadline = time.monotonic() + 120
        while admin.reassignments.list():
            assert time.monotonic() < deadline, admin.reassignments.list()
            time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 1200)
def test_half_an_hour_of_load_and_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("MIXED_SEED", "0"))
    world = Migration(tmp_path, RELEASE, secure=False, kafka=(1, 2), properties=SNAPSHOTS)
    faults = Faults(world, random.Random(seed))
    try:
        world.start_kafka()
        world.join(11)
        world.join(12, votes=False)
        world.migrate("controllers", "--to", "1,2,11")
        with world.admin() as admin:
            admin.topics.create("orders", assignment=[[1, 11, 2], [11, 2, 12], [12, 1, 11]])
            admin.topics.create("ledger", assignment=[[2, 12, 1], [11, 1, 12]])
            admin.topics.create(STATE, assignment=STATE_REPLICAS, configs=LatestValues.CONFIGS)
        with (
            Load(world.bootstrap, "orders", 3, rate=60.0) as load,
            Transactions(world.bootstrap, "ledger", 2) as transactions,
            LatestValues(world.bootstrap, STATE, len(STATE_REPLICAS)) as latest,
        ):
            end = time.monotonic() + MINUTES * 60
            while time.monotonic() < end:
                faults.one()
                load.wait_for_more()
                transactions.wait_for_more()
                with world.admin() as admin:
                    load.check_committed(admin)
                print(f"{sum(faults.counts.values())}: {load.step()}, {transactions.step():.1f}", flush=True)
        load.check(world.bootstrap)
        transactions.check()
        latest.check(world.bootstrap)
        world.wait_in_sync()
        _same_logs(world)
        for partition, replicas in enumerate(STATE_REPLICAS):
            for node_id in replicas:
                latest.check_directory(world.data_directory(node_id), partition)
    finally:
        world.stop()
    snapshots = compare({str(node_id): read(world.data_directory(node_id)) for node_id in NODES})
    assert snapshots > len(NODES)
    compare_by_shell([world.data_directory(node_id) for node_id in NODES], tmp_path / "shell")
    print(f"{sum(load.sent)} records, {transactions.committed} transactions, {transactions.aborted} aborted")
    print(f"{len(transactions.refused)} transactions refused; {snapshots} snapshots compared; {dict(faults.counts)}")


def _same_logs(world: Migration) -> None:
    with world.admin() as admin:
        topics = admin.topics.list()
    for topic in topics:
        if topic.name == STATE:
            continue  # each broker cleans its own log
        for partition in topic.partitions:
            place = (topic.name, partition.partition)
            first, *others = (log_bytes(world.data_directory(each), *place) for each in partition.replicas)
            assert all(other == first for other in others), f"{place} on {partition.replicas}"
