"""The whole migration, long: three nodes of Apache Kafka in both roles become three of Penstock, and go back, under
load.

At every step a node of each kind is killed while the step is carried out. What is written to `build/migration` is how
long a record waited for its acknowledgement and for its reader at most, and how long a transaction took, by step; and a
table of the clusters that were moved there and back. The control is the same cluster before the first step: Kafka
alone, one node killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import confluent_kafka
import pytest

from migration_cluster import Migration, client_settings
from migration_witnesses import InFlight
from migration_world import IDEMPOTENT, QUIET, LatestValues, Load, Transactions
from penstock.client.wire.admin import Acl, Admin
from penstock.client.wire.partition_log import PartitionLog
from penstock.model.ids import TopicPartition
from waiting import wait_until

# Release, the features of another one or None, and whether with users, TLS and ACLs.
CLUSTERS = [
    ("4.1.2", None, False),
    ("4.2.1", None, False),
    ("4.3.1", None, False),
    ("4.3.1", None, True),
    ("4.3.1", "4.0", False),
]
TABLES = Path(__file__).parents[2] / "build" / "migration"

pytestmark = pytest.mark.xdist_group("apache-kafka")


def title(cluster: tuple[str, str | None, bool]) -> str:
    release, level, secure = cluster
    return f"{release}{f' at {level}' if level else ''} {'SASL_SSL' if secure else 'plain'}"


class Settings:
    """What is in the metadata besides topics: quotas, users, and tokens where there are logins. The same nodes of both
    kinds tell afterwards."""

    QUOTA = {"user": "app", "client-id": None}
    VALUES = {"producer_byte_rate": 50_000_000.0, "request_percentage": 400.0}

    def __init__(self, world: Migration) -> None:
        self._world = world
        with world.admin() as admin:
            admin.quotas.alter(self.QUOTA, self.VALUES)
            admin.quotas.alter({"ip": "10.1.2.3"}, {"connection_creation_rate": 7.0})
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                admin.users.set_password("app", "a-scram-password", mechanism=mechanism, iterations=4096)
            if world.secure:
                admin.tokens.create(owner="User:app", renewers=["User:admin"])
        self._expected = wait_until(self._complete, "quotas, users and tokens")

    def check(self) -> None:
        assert self._told() == self._expected

    def _complete(self) -> list[str] | None:
        told = self._told()
        return told if len(told) == 3 + self._world.secure else None

    def _told(self) -> list[str]:
        with self._world.admin() as admin:
            told = [f"{sorted(each.entity.items())} {sorted(each.values.items())}" for each in admin.quotas.describe()]
            told += [f"{each.name} {sorted(each.mechanisms.items())}" for each in admin.users.list()]
            if self._world.secure:
                told += [f"{each.token_id} {each.hmac.hex()} {each!r}" for each in admin.tokens.list()]
        return sorted(told)


TRIMMED, DELETED_TO = "trimmed", 600


def write_trimmed(world: Migration, settings: Mapping[str, str]) -> None:
    """A topic whose first records are deleted."""
    producer = confluent_kafka.Producer({"bootstrap.servers": world.bootstrap, **IDEMPOTENT, **QUIET, **settings})
    for number in range(1000):
        producer.produce(TRIMMED, str(number))
        if number % 100 == 99:
            assert producer.flush(60) == 0
    with world.admin() as admin:
        admin.topics.delete_records({TopicPartition(TRIMMED, 0): DELETED_TO})
    for node in world.kafka.values():

        def is_noted(checkpoint: Path = node.data_directory / "log-start-offset-checkpoint") -> bool:
            return f"{TRIMMED} 0 {DELETED_TO}\n" in checkpoint.read_text()

        wait_until(is_noted, f"where {TRIMMED} begins on the disk of {node.node_id}")


def check_trimmed(world: Migration) -> None:
    with PartitionLog(world.bootstrap, TopicPartition(TRIMMED, 0), options=world.client_options) as log:
        assert [int(each.value or b"-1") for each in log.read()] == list(range(DELETED_TO, 1000))


class Table:
    """The longest pauses, by step."""

    def __init__(self, load: Load, transactions: Transactions) -> None:
        self._load = load
        self._transactions = transactions
        self.rows: list[str] = []

    def note(self, name: str) -> None:
        """Once everything flows again."""
        self._load.wait_for_more()
        self._transactions.wait_for_more()
        pauses = self._load.step()
        row = f"| {name} | {pauses.producer:.1f} | {pauses.group:.1f} | {self._transactions.step():.1f} |"
        self.rows.append(row)
        print(row, flush=True)

    def write(self, title: str) -> None:
        """The table of this cluster, and a row in that of all clusters that were moved there and back."""
        os.makedirs(TABLES, exist_ok=True)
        head = f"| {title} | producer, s | group, s | transaction, s |\n|---|---|---|---|\n"
        (TABLES / f"{title}.md").write_text(head + "".join(f"{row}\n" for row in self.rows))
        records, done = sum(self._load.sent), self._transactions
        row = f"| {title} | {records} of {records} | {done.committed} of {done.committed} | {done.aborted} |\n"
        (TABLES / f"{title}.row").write_text(row)
        head = "| Kafka | records, each once | transactions | aborted, not seen |\n|---|---|---|---|\n"
        rows = (path.read_text() for path in sorted(TABLES.glob("*.row")))
        (TABLES / "releases.md").write_text(head + "".join(rows))


def grant(world: Migration, topics: Iterable[str]) -> None:
    grants = [("TRANSACTIONAL_ID", "ledger-writer", "ALL")]
    grants += [("TOPIC", topic, "ALL") for topic in topics] + [("GROUP", f"{topic}-readers", "ALL") for topic in topics]
    grants.append(("GROUP", "ledger-check", "ALL"))
    with world.admin() as admin:
        admin.acls.create(
            Acl(principal="User:app", operation=operation, resource_type=kind, resource=name)
            for kind, name, operation in grants
        )
    for node in world.kafka.values():  # each learns of it for itself

        def knows_all(address: str = node.bootstrap) -> bool:
            with Admin(address, timeout=30.0, options=world.client_options) as admin:
                return len(admin.acls.describe()) == len(grants)

        wait_until(knows_all, f"all ACLs on {node.node_id}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("release", "level", "secure"), CLUSTERS, ids=map(title, CLUSTERS))
def test_three_nodes_become_penstock_and_kafka_again(
    tmp_path: Path, release: str, level: str | None, secure: bool
) -> None:
    world = Migration(tmp_path, release, secure=secure, level=level)
    settings = client_settings(world.client_options, "app")
    try:
        world.start_kafka()
        with world.admin() as admin:
            admin.topics.create("orders", partitions=3, replication_factor=3)
            admin.topics.create("ledger", partitions=2, replication_factor=3)
            admin.topics.create("state", partitions=2, replication_factor=3, configs=LatestValues.CONFIGS)
            admin.topics.create(TRIMMED, partitions=1, replication_factor=3)
            if not secure:  # the driver has no logins
                admin.topics.create("in-flight", partitions=1, replication_factor=3)
        if secure:
            grant(world, ["orders", "ledger", "state", TRIMMED, "mixed-1", "mixed-2"])
        write_trimmed(world, settings)
        others = Settings(world)
        with (
            Load(world.bootstrap, "orders", 3, rate=60.0, settings=settings) as load,
            Transactions(world.bootstrap, "ledger", 2, settings=settings) as transactions,
            LatestValues(world.bootstrap, "state", 2, settings=settings) as latest,
            contextlib.nullcontext() if secure else InFlight(world.bootstrap, "in-flight") as in_flight,
        ):
            table = Table(load, transactions)

            def note(name: str) -> None:
                table.note(name)
                with world.admin() as admin:
                    load.check_committed(admin)
                others.check()

            load.wait_for_more()
            load.step()  # of the start
            note("Kafka alone")
            world.kill(2)
            note("Kafka alone, one killed: the control")
            for name in world.there():
                note(name)
                if name == "join":
                    world.compare_logs("mixed-1", settings, killed=(3, 13))
            world.compare_logs("mixed-2", settings, killed=(1, 12))
            note("all votes at Penstock, one of each killed")
            for step in (world.leave_kafka(), world.return_kafka(), world.back()):
                for name in step:
                    note(name)
        load.check(world.bootstrap, options=world.client_options)
        transactions.check()
        latest.check(world.bootstrap, options=world.client_options)
        check_trimmed(world)
        if in_flight is not None:
            in_flight.check()
        table.write(title((release, level, secure)))
    finally:
        world.stop()
