"""Read, process, write on clusters that are hurt: what comes of every record is there exactly once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from chaos.group_faults import PROPERTIES, WITH_LOGINS
from chaos.member_scene import INTERNAL_PARTITIONS
from chaos.secured import Logins, may, start_secured_cluster, without_login
from chaos.transaction_faults import FAULTS, PROTOCOLS, Output, TransactionScene, is_all_decided
from chaos.workload import steady_writer
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS = 6  # one for each worker and a zombie: who has none notices nothing
SOURCE, TARGET, GROUP = "source", "target", "workers"

ACLS = [
    may("writer", "WRITE", "TOPIC", SOURCE),
    may("worker", "READ", "TOPIC", SOURCE),
    may("worker", "READ", "GROUP", GROUP),
    may("worker", "WRITE", "TOPIC", TARGET),
    may("worker", "WRITE", "TRANSACTIONAL_ID", f"{GROUP}-", "PREFIXED"),
    may("auditor", "DESCRIBE", "TOPIC", SOURCE),
    may("auditor", "DESCRIBE", "GROUP", GROUP),
    may("auditor", "READ", "TOPIC", TARGET),
    may("auditor", "READ", "GROUP", "output"),
    may("auditor", "DESCRIBE", "TOPIC", CONSUMER_OFFSETS),
]


def campaign(
    cluster: RunningCluster,
    protocol: str,
    sizes: list[int],
    faults: list[str],
    seed: int,
    logins: Logins = without_login,
) -> None:
    """Each fault comes with a group of the next size."""
    for topic in (SOURCE, TARGET):
        cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    writer = steady_writer(cluster.bootstrap, SOURCE, PARTITIONS, logins("writer"))
    writer.start()
    scene = TransactionScene(cluster, writer, SOURCE, TARGET, GROUP, protocol, random.Random(seed), logins)
    try:
        for size, fault in zip(sizes, faults, strict=True):
            began = time.monotonic()
            scene.resize(size)
            scene.progress()
            FAULTS[fault](scene)
            scene.whole()
            scene.check_output()
            print(f"{size} workers, {fault}: {time.monotonic() - began:.1f} s, {dict(scene.counts)}")
        writer.stop()
        assert not writer.failures
        scene.catch_up()
        scene.resize(0)
        print(scene.reasons.most_common())
        topics = {TARGET: PARTITIONS, CONSUMER_OFFSETS: INTERNAL_PARTITIONS}
        auditor = logins("auditor")
        cluster.wait_until(lambda: is_all_decided(cluster.bootstrap, topics, auditor), "the end of all transactions")
    finally:
        writer.abandon()
        scene.end()
    output = Output(cluster.bootstrap, TARGET, PARTITIONS, auditor)
    output.read_to_end()
    assert output.found == set(range(writer.sent))


@pytest.mark.parametrize(
    ("protocol", "sizes", "faults"),
    [("consumer", [2, 1], ["zombie", "kill_transaction_coordinator"])],
)
def test_workers(tmp_path: Path, protocol: str, sizes: list[int], faults: list[str]) -> None:
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, protocol, sizes, faults, seed=1)


def plan(seed: int) -> tuple[list[int], list[str], int]:
    """Sizes of the group, faults (each four times), and the seed."""
    rng = random.Random(seed)
    faults = [fault for _ in range(4) for fault in rng.sample(sorted(FAULTS), len(FAULTS))]
    return [rng.randint(1, 4) for _ in faults], faults, seed


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(2))
def test_many_faults(tmp_path: Path, protocol: str, seed: int) -> None:
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, protocol, *plan(seed))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_many_faults_with_tls_passwords_and_acls(tmp_path: Path, protocol: str) -> None:
    with start_secured_cluster(tmp_path, ACLS, WITH_LOGINS) as (cluster, logins):
        campaign(cluster, protocol, *plan(seed=2), logins)
