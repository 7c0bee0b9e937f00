"""A cluster that stays mixed: two brokers of Apache Kafka and two of Penstock, two controllers and one, under load and
faults for half an hour (`MIXED_MINUTES` for another time)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from metadata_directories import compare, read
from metadata_shell import compare_by_shell
from migration_cluster import Migration
from migration_world import LatestValues, Load, Transactions, log_bytes
from penstock.client.wire.admin import Admin, ResourceType
from penstock.migrate.patience import patiently
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition

RELEASE = "4.3.1"
MINUTES = float(os.environ.get("MIXED_MINUTES", "30"))
NODES = (1, 2, 11, 12)
STATE, STATE_REPLICAS = "state", [[2, 11, 12], [12, 1, 11]]
# Snapshots are images: many of them, and nothing of the log is removed.
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "20000", "metadata.max.retention.ms": "-1"}

pytestmark = pytest.mark.xdist_group("apache-kafka")


Repair = Callable[[], None]


@contextlib.contextmanager
def tolerated(code: ErrorCode) -> Iterator[None]:
    """What an attempt whose answer was lost has done already."""
    try:
        yield
    except KafkaError as error:
        if error.code is not code:
            raise


class Faults:
    def __init__(self, world: Migration, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._topics = 0
        self.counts: Counter[str] = Counter()

    def one(self) -> None:
        kinds: list[Callable[[int], Repair]] = [self.killed, self.stopped, self.paused, self.paused_for_long]
        node_id = self._chance.choice(NODES)
        fault = self._chance.choice(kinds)
        kind = "Kafka" if node_id in self._world.kafka else "Penstock"
        repair = fault(node_id)
        # While the node is down: it learns of it when it is back.
        others = ",".join(f"127.0.0.1:{self._world.ports[each][0]}" for each in NODES if each != node_id)
        self._change(others, [self._topic, self._setting, self._quota, self._user])
        repair()
        self.counts[f"{fault.__name__} ({kind})"] += 1
        self._change(self._world.bootstrap, [self._topic, self._setting, self._quota, self._user, self._move])
        self._world.wait_in_sync()

    def killed(self, node_id: int) -> Repair:
        self._world.kill_process(node_id)
        return lambda: self._world.restart(node_id)

    def stopped(self, node_id: int) -> Repair:
        (self._world.kafka.get(node_id) or self._world.penstock[node_id]).stop()
        return lambda: self._world.restart(node_id)

    def paused(self, node_id: int) -> Repair:
        return self._pause(node_id, 2.0)

    def paused_for_long(self, node_id: int) -> Repair:
        """Longer than the session of a broker."""
        return self._pause(node_id, 14.0)

    def _pause(self, node_id: int, seconds: float) -> Repair:
        process = (self._world.kafka.get(node_id) or self._world.penstock[node_id]).process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        end = time.monotonic() + seconds

        def go_on() -> None:
            time.sleep(max(0.0, end - time.monotonic()))
            os.kill(process.pid, signal.SIGCONT)

        return go_on

    def _change(self, bootstrap: str, kinds: Sequence[Callable[[Admin], None]]) -> None:
        """Something of the metadata, by whichever controller leads, or will in a moment."""
        with Admin(bootstrap, timeout=30.0) as admin:
            for change in self._chance.choices(kinds, k=3):
                patiently(partial(change, admin))
                self.counts[change.__name__.strip("_")] += 1

    def _topic(self, admin: Admin) -> None:
        with tolerated(ErrorCode.TOPIC_ALREADY_EXISTS):
            admin.topics.create(f"topic-{self._topics + 1}", partitions=4, replication_factor=3)
        self._topics += 1
        if self._topics > 3:
            with tolerated(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                admin.topics.delete(f"topic-{self._topics - 3}")

    def _quota(self, admin: Admin) -> None:
        entity = {"user": self._chance.choice(["alice", "bob"])}
        if self._chance.random() < 0.3:
            admin.quotas.alter(entity, remove=["consumer_byte_rate"])
        else:
            admin.quotas.alter(entity, {"consumer_byte_rate": float(self._chance.randrange(10**6, 10**9))})

    def _user(self, admin: Admin) -> None:
        name = self._chance.choice(["alice", "bob"])
        if self._chance.random() < 0.3 and name in {user.name for user in admin.users.list()}:
            with tolerated(ErrorCode.RESOURCE_NOT_FOUND):
                admin.users.remove(name, mechanism="SCRAM-SHA-512")
        else:
            admin.users.set_password(name, f"password-{self._chance.random()}", mechanism="SCRAM-SHA-512")

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
