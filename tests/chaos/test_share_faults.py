"""Share groups on clusters of real processes, hurt under load: workers and brokers are killed and paused.

Each record is handled at least once, at most as often as the delivery count limit allows and once more for each change
of leader, and exactly once while nothing dies.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from chaos.secured import Logins, may, start_secured_cluster, without_login
from chaos.share_faults import FAULTS, PROPERTIES, ShareScene
from chaos.workload import steady_writer
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS = 3
TOPIC, GROUP = "jobs", "workers"

ACLS = [
    may("writer", "WRITE", "TOPIC", TOPIC),
    may("worker", "READ", "TOPIC", TOPIC),
    may("worker", "READ", "GROUP", GROUP),
]


def campaign(
    cluster: RunningCluster,
    members: int,
    workers: int,
    faults: list[str],
    seed: int,
    logins: Logins = without_login,
) -> None:
    """`workers` in each member."""
    cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    writer = steady_writer(cluster.bootstrap, TOPIC, PARTITIONS, logins("writer"), records_a_second=200)
    scene = ShareScene(cluster, writer, TOPIC, GROUP, random.Random(seed), workers, logins=logins)
    scene.begin()
    writer.start()
    try:
        began = time.monotonic()
        scene.join(members)
        print(f"{scene.quiet()} records handled once each, {time.monotonic() - began:.1f} s")
        for number, fault in enumerate(faults, 1):
            began = time.monotonic()
            FAULTS[fault](scene)
            scene.whole()
            scene.check()
            told = scene.ledger
            print(
                f"{number} {fault}: {time.monotonic() - began:.1f} s, {len(told.handled)} records, {dict(told.counts)}",
                flush=True,
            )
        print(f"{scene.quiet()} records handled once each")
        writer.stop()
        assert not writer.failures
        scene.finish()
        scene.check()
        print(f"handled so often: {sorted(_histogram(scene).items())}; {scene.ledger.reasons.most_common(9)}")
        scene.leave()
    finally:
        writer.abandon()
        scene.end()


def _histogram(scene: ShareScene) -> dict[int, int]:
    counted: dict[int, int] = {}
    for count in scene.ledger.handled.values():
        counted[count] = counted.get(count, 0) + 1
    return counted


def test_a_share_group(tmp_path: Path) -> None:
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, 3, 2, ["kill_leader_and_member", "stop_leader"], seed=1)


def many_faults(seed: int) -> list[str]:
    """Each four times."""
    rng = random.Random(seed)
    return [fault for _ in range(4) for fault in rng.sample(sorted(FAULTS), len(FAULTS))]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_faults(tmp_path: Path) -> None:
    """50 workers, 44 faults."""
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, 10, 5, many_faults(7), seed=7)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_faults_with_tls_passwords_and_acls(tmp_path: Path) -> None:
    """10 workers: all of them log in anew every five seconds, at each broker."""
    with start_secured_cluster(tmp_path, ACLS, PROPERTIES) as (cluster, logins):
        campaign(cluster, 5, 2, many_faults(8), 8, logins)
