"""Java's client and Kafka's own commands on a cluster of three brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cases import numbered_records
from drivers.java import JavaClient, class_path, run_tool

from penstock.testing.clusters import RunningCluster, start_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    class_path()  # skips where there is no Java
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=3) as cluster:
        yield cluster


def tool(cluster: RunningCluster, name: str, *arguments: str) -> str:
    outcome = run_tool(name, "--bootstrap-server", cluster.bootstrap, *arguments)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def test_metadata_quorum(cluster: RunningCluster) -> None:
    status = tool(cluster, "MetadataQuorumCommand", "describe", "--status")
    leader = re.search(r"LeaderId:\s+(\d+)", status)
    assert leader is not None
    assert int(leader.group(1)) == cluster.active_controller().node_id
    replication = tool(cluster, "MetadataQuorumCommand", "describe", "--replication")
    states = [line.split()[-1] for line in replication.strip().splitlines()[1:]]
    assert sorted(states) == ["Follower", "Follower", "Leader", "Observer", "Observer", "Observer"]


def test_reassign_partitions(cluster: RunningCluster, unique_topic: Callable[[str], str], tmp_path: Path) -> None:
    topic = unique_topic("moved")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
    cluster.wait_for_isr(topic)
    with closing(JavaClient(cluster.bootstrap)) as client:
        client.produce(topic, numbered_records(100))
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 3]}]}))
    tool(cluster, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--execute")

    def moved() -> bool:
        (partition,) = cluster.describe(topic).partitions
        return partition.replicas == (2, 3) and set(partition.isr) == {2, 3}

    cluster.wait_until(moved, "the partition on brokers 2 and 3")
    said = tool(cluster, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--verify")
    assert f"Reassignment of partition {topic}-0 is completed" in said
    assert "No partition reassignments found." in tool(cluster, "reassign.ReassignPartitionsCommand", "--list")
    cluster.wait_until(lambda: not Path(cluster.broker(1).partition_directory(topic)).exists(), "removal from broker 1")


def test_leader_election(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("preferred")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[2, 3, 1]])
    cluster.wait_for_isr(topic)
    preferred = cluster.broker(2)
    preferred.stop()
    assert cluster.leader_of(topic, 0) is not preferred
    preferred.start()
    cluster.wait_for_isr(topic)
    said = tool(cluster, "LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Successfully completed leader election" in said
    cluster.wait_until(lambda: cluster.leader_of(topic, 0) is preferred, "the preferred leader")


def test_follows_the_leader(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("followed")
    cluster.create_topic(topic, 1)
    with closing(JavaClient(cluster.bootstrap)) as client:
        client.produce(topic, numbered_records(10))
        for harm in ("stop", "kill"):
            leader = cluster.leader_of(topic, 0)
            getattr(leader, harm)()
            client.produce(topic, numbered_records(10))
            leader.start()
            cluster.wait_for_isr(topic)
        with cluster.admin() as admin:
            from penstock.model.ids import TopicPartition

            assert admin.topics.offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 30}
