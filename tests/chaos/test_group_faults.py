"""Consumer groups of real clients, on clusters of real processes, hurt under load while members come and go.

Every record is read, no commit is lost or goes back, and no partition has two owners in a generation.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from chaos.group_faults import FAULTS, PROPERTIES, WITH_LOGINS, GroupScene
from chaos.group_ledger import commits_in_log
from chaos.member_scene import INTERNAL_PARTITIONS
from chaos.secured import Logins, may, start_secured_cluster, without_login
from chaos.workload import steady_writer
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS = 8
TOPIC, GROUP = "events", "readers"

ACLS = [
    may("writer", "WRITE", "TOPIC", TOPIC),
    may("member", "READ", "TOPIC", TOPIC),
    may("member", "READ", "GROUP", GROUP),
    may("auditor", "DESCRIBE", "TOPIC", TOPIC),
    may("auditor", "DESCRIBE", "GROUP", GROUP),
    may("auditor", "READ", "TOPIC", CONSUMER_OFFSETS),
    may("auditor", "READ", "GROUP", "auditor"),
]

GROUPS = {
    "range": ["confluent"],
    "cooperative": ["confluent-cooperative"],
    "consumer-protocol": ["confluent-consumer-protocol"],
    "kafka-python": ["kafka-python"],
    "aiokafka": ["aiokafka"],
    "mixed": ["confluent", "kafka-python", "aiokafka"],
    "kafkajs": ["kafkajs"],
    "java": ["java"],
    "java-consumer-protocol": ["java-consumer-protocol"],
    "migrating": ["confluent-cooperative", "confluent-consumer-protocol"],
}

# kafkajs asks whichever broker it is connected to for metadata, time-out after time-out: while that one is silent, and
# nothing closes the connection, it does not turn to the others.
BEYOND = {"kafkajs": {"pause_coordinator"}}

NEEDS = {"kafkajs": ("node", "npm"), "java": ("java", "mvn"), "java-consumer-protocol": ("java", "mvn")}


# What is also played with TLS, passwords and ACLs: librdkafka with both protocols, and the clients in Python.
SECURED = ["cooperative", "consumer-protocol", "mixed"]


def campaign(
    cluster: RunningCluster,
    kinds: list[str],
    sizes: list[int],
    faults: list[str],
    logins: Logins = without_login,
    *,
    seed: int = 1,
) -> None:
    """Each fault comes with a group of the next size."""
    cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    writer = steady_writer(cluster.bootstrap, TOPIC, PARTITIONS, logins("writer"))
    writer.start()
    scene = GroupScene(cluster, writer, TOPIC, GROUP, random.Random(seed), kinds, logins=logins)
    try:
        scene.resize(sizes[0])
        scene.progress()
        for size, fault in zip(sizes, faults, strict=True):
            began = time.monotonic()
            scene.resize(size)
            FAULTS[fault](scene)
            scene.whole()
            scene.check_commits()
            print(f"{size} members, {fault}: {time.monotonic() - began:.1f} s, {dict(scene.ledger.counts)}")
        writer.stop()
        assert not writer.failures
        scene.catch_up()
        scene.resize(0)
        scene.check_commits()
    finally:
        writer.abandon()
        scene.end()
    check_log(cluster, scene)


def check_log(cluster: RunningCluster, scene: GroupScene) -> None:
    login = scene.logins("auditor")
    for partition, offsets in commits_in_log(cluster.bootstrap, scene.group, INTERNAL_PARTITIONS, login).items():
        assert offsets == sorted(offsets), f"a commit of partition {partition} went back"
        assert offsets[-1] == scene.ledger.acknowledged[partition]


@pytest.mark.parametrize(
    ("name", "sizes", "faults"),
    [
        ("cooperative", [3, 2], ["kill_coordinator_and_member", "stop_coordinator"]),
        pytest.param("consumer-protocol", [3], ["pause_member"], marks=pytest.mark.soak),
    ],
)
def test_a_group(tmp_path: Path, name: str, sizes: list[int], faults: list[str]) -> None:
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, GROUPS[name], sizes, faults)


def test_a_group_with_tls_passwords_and_acls(tmp_path: Path) -> None:
    with start_secured_cluster(tmp_path, ACLS, WITH_LOGINS) as (cluster, logins):
        campaign(cluster, GROUPS["consumer-protocol"], [2], ["kill_coordinator_and_member"], logins)


def plan(name: str) -> tuple[list[str], list[int], list[str]]:
    """Kinds of members, sizes of the group, faults: each fault four times."""
    rng = random.Random(name)
    possible = sorted(FAULTS.keys() - BEYOND.get(name, set()))
    faults = [fault for _ in range(4) for fault in rng.sample(possible, len(possible))]
    return GROUPS[name], [rng.randint(1, 10) for _ in faults], faults


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", GROUPS)
def test_many_faults(tmp_path: Path, name: str) -> None:
    for command in NEEDS.get(name, ()):
        if not shutil.which(command):
            pytest.skip(f"{name} needs {command}")
    with start_cluster(tmp_path, brokers=3, properties=PROPERTIES) as cluster:
        campaign(cluster, *plan(name))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SECURED)
def test_many_faults_with_tls_passwords_and_acls(tmp_path: Path, name: str) -> None:
    with start_secured_cluster(tmp_path, ACLS, WITH_LOGINS) as (cluster, logins):
        campaign(cluster, *plan(name), logins)
