"""Clusters of real processes that are hurt under load.

Afterwards every acknowledged record is there, once and in order, every replica has the same bytes, and all are in sync.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from chaos.faults import FAULTS, PROPERTIES, Scene
from chaos.replicas import same_bytes
from chaos.secured import Logins, may, start_secured_cluster, without_login
from chaos.workload import Reader, Writer, check, read_all
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS = 3
TOPIC = "events"
ACLS = [
    may("writer", "WRITE", "TOPIC", TOPIC),
    may("reader", "READ", "TOPIC", TOPIC),
    may("reader", "READ", "GROUP", "along"),
    may("reader", "READ", "GROUP", "reader"),
]


def campaign(cluster: RunningCluster, faults: list[str], seed: int, logins: Logins = without_login) -> None:
    cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    writer = Writer(
        cluster.bootstrap,
        TOPIC,
        PARTITIONS,
        # A request to a leader that is silent, or cut off from its followers, is given up soon.
        {
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": 120_000,
            "request.timeout.ms": 3000,
            **logins("writer"),
        },
        records_a_second=3000,
    )
    reader = Reader(cluster.bootstrap, TOPIC, PARTITIONS, dict(logins("reader")))
    writer.start()
    reader.start()
    try:
        scene = Scene(cluster, writer, TOPIC, random.Random(seed))
        scene.progress()
        for fault in faults:
            began = time.monotonic()
            FAULTS[fault](scene)
            print(f"{fault}: {time.monotonic() - began:.1f} s, {len(writer.acknowledged)} acknowledged")
        scene.progress()
        writer.stop()
        reader.stop()
    finally:
        writer.abandon()
        reader.abandon()
    assert not writer.failures
    cluster.wait_for_isr(TOPIC)
    cluster.wait_until(lambda: same_bytes(cluster, TOPIC, PARTITIONS), "replicas of the same length")
    found = read_all(cluster.bootstrap, TOPIC, PARTITIONS, timeout=300, settings=logins("reader"))
    check(writer, found, exactly_once=True)
    reader.check(found)


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(["kill_leader", "kill_controller", "stop_leader", "empty_disk"], id="crashes"),
        pytest.param(["pause_leader", "cut_leader_off", "kill_all_brokers"], id="silence", marks=pytest.mark.soak),
    ],
)
def test_three_brokers(tmp_path: Path, faults: list[str]) -> None:
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES, proxied="cut_leader_off" in faults) as cluster:
        campaign(cluster, faults, seed=1)


def test_three_brokers_with_tls_passwords_and_acls(tmp_path: Path) -> None:
    hurt_secured(tmp_path, ["kill_leader", "stop_leader"], seed=2)


def hurt_secured(directory: Path, faults: list[str], seed: int) -> None:
    proxied = any(fault.startswith("cut") for fault in faults)
    with start_secured_cluster(directory, ACLS, PROPERTIES, proxied=proxied) as (cluster, logins):
        campaign(cluster, faults, seed, logins)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
def test_many_faults_with_tls_passwords_and_acls(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    faults = [fault for _ in range(2) for fault in rng.sample(sorted(FAULTS), len(FAULTS))]
    print(f"seed {seed}: {', '.join(faults)}")
    hurt_secured(tmp_path, faults, seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("brokers", [3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_many_faults(tmp_path: Path, brokers: int, seed: int) -> None:
    rng = random.Random(seed)
    faults = [fault for _ in range(4) for fault in rng.sample(sorted(FAULTS), len(FAULTS))]
    print(f"seed {seed}: {', '.join(faults)}")
    with start_cluster(tmp_path, brokers=brokers, properties=PROPERTIES, proxied=True) as cluster:
        campaign(cluster, faults, seed)
