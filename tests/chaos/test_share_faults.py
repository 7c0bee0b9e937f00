"""Share groups on clusters of real processes, hurt under load: workers and brokers are killed and paused.

Each record is handled at least once, at most as often as the delivery count limit allows and once more for each change
of leader, and exactly once while nothing dies.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from chaos.share_faults import FAULTS, PROPERTIES, ShareScene
from chaos.workload import Writer
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS = 3
TOPIC = "jobs"


def campaign(cluster: RunningCluster, members: int, workers: int, faults: list[str], seed: int) -> None:
    """`workers` in each member."""
    cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    writer = Writer(
        cluster.bootstrap,
        TOPIC,
        PARTITIONS,
        {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 120_000, "request.timeout.ms": 3000},
        payload=b"x" * 20,
        records_a_second=200,
    )
    scene = ShareScene(cluster, writer, TOPIC, "workers", random.Random(seed), workers)
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


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_faults(tmp_path: Path) -> None:
    """50 workers, 44 faults."""
    rng = random.Random(7)
    faults = [fault for _ in range(4) for fault in rng.sample(sorted(FAULTS), len(FAULTS))]
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, 10, 5, faults, seed=7)
