"""Java's client and Kafka's own commands on a cluster of three brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clients.cases import numbered_records
from clients.drivers.java import JavaClient, class_path, run_tool
from penstock.client.wire.admin import ResourceType
from penstock.model.ids import TopicPartition
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


REASSIGN = "reassign.ReassignPartitionsCommand"


def plan_of(path: Path, topic: str, *replicas: list[int]) -> str:
    """The file that names the new replicas for the tool."""
    partitions = [{"topic": topic, "partition": index, "replicas": each} for index, each in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def configs_of(cluster: RunningCluster, resource: ResourceType, name: str) -> dict[str, str]:
    """Those that were set."""
    with cluster.admin() as admin:
        entries = admin.configs.describe(resource, name)
    return {each.name: each.value or "" for each in entries if each.source.startswith("DYNAMIC")}


@pytest.mark.soak
def test_reassign_partitions(cluster: RunningCluster, unique_topic: Callable[[str], str], tmp_path: Path) -> None:
    topic = unique_topic("moved")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
    cluster.wait_for_isr(topic)
    with closing(JavaClient(cluster.bootstrap)) as client:
        client.produce(topic, numbered_records(100))
    plan = plan_of(tmp_path / "plan.json", topic, [2, 3])
    tool(cluster, REASSIGN, "--reassignment-json-file", plan, "--execute")

    def moved() -> bool:
        (partition,) = cluster.describe(topic).partitions
        return partition.replicas == (2, 3) and set(partition.isr) == {2, 3}

    cluster.wait_until(moved, "the partition on brokers 2 and 3")
    said = tool(cluster, REASSIGN, "--reassignment-json-file", plan, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed" in said
    assert "No partition reassignments found." in tool(cluster, REASSIGN, "--list")
    cluster.wait_until(lambda: not Path(cluster.broker(1).partition_directory(topic)).exists(), "removal from broker 1")


@pytest.mark.soak
def test_a_generated_plan_moves_partitions(
    cluster: RunningCluster, unique_topic: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique_topic("generated")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[1, 2]] * 4)
    cluster.wait_for_isr(topic)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    said = tool(cluster, REASSIGN, "--topics-to-move-json-file", str(topics), "--broker-list", "2,3", "--generate")
    current, proposed = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert [each["replicas"] for each in current["partitions"]] == [[1, 2]] * 4
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(proposed))
    tool(cluster, REASSIGN, "--reassignment-json-file", str(plan), "--execute")

    def moved() -> bool:
        return all(set(each.replicas) == set(each.isr) == {2, 3} for each in cluster.describe(topic).partitions)

    cluster.wait_until(moved, "the partitions on brokers 2 and 3")


@pytest.mark.soak
def test_a_throttled_move_is_cancelled_or_goes_on(
    cluster: RunningCluster, unique_topic: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique_topic("throttled")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[1]], configs={"min.insync.replicas": "1"})
    cluster.wait_for_isr(topic)
    with closing(JavaClient(cluster.bootstrap)) as client:
        client.produce(topic, numbered_records(40, size=50_000))  # more than a throttled follower may have at once
    plan = ("--reassignment-json-file", plan_of(tmp_path / "plan.json", topic, [2]))
    said = tool(cluster, REASSIGN, *plan, "--execute", "--throttle", "1000")
    assert "Successfully started partition reassignment" in said
    assert configs_of(cluster, ResourceType.BROKER, "1")["leader.replication.throttled.rate"] == "1000"
    assert configs_of(cluster, ResourceType.TOPIC, topic)["follower.replication.throttled.replicas"] == "0:2"
    assert f"Reassignment of partition {topic}-0 is still in progress." in tool(cluster, REASSIGN, *plan, "--verify")
    assert f"{topic}-0: replicas: 2,1. adding: 2. removing: 1." in tool(cluster, REASSIGN, "--list")

    assert "Successfully cancelled" in tool(cluster, REASSIGN, *plan, "--cancel")
    assert cluster.describe(topic).partitions[0].replicas == (1,)
    assert "leader.replication.throttled.rate" not in configs_of(cluster, ResourceType.BROKER, "1")
    assert "follower.replication.throttled.replicas" not in configs_of(cluster, ResourceType.TOPIC, topic)

    tool(cluster, REASSIGN, *plan, "--execute", "--throttle", "1000")
    tool(cluster, REASSIGN, *plan, "--execute", "--throttle", "100000000", "--additional")
    cluster.wait_until(lambda: cluster.describe(topic).partitions[0].replicas == (2,), "the partition on broker 2")
    said = tool(cluster, REASSIGN, *plan, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed" in said
    assert "Clearing broker-level throttles" in said
    assert "leader.replication.throttled.rate" not in configs_of(cluster, ResourceType.BROKER, "2")


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


@pytest.mark.soak
def test_unclean_leader_election(cluster: RunningCluster, unique_topic: Callable[[str], str], tmp_path: Path) -> None:
    """The last in-sync replica is away: another leads only if somebody says so."""
    topic = unique_topic("unclean")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
    cluster.wait_for_isr(topic)
    cluster.broker(2).kill()
    cluster.wait_until(lambda: cluster.describe(topic).partitions[0].isr == (1,), "an ISR of one")
    cluster.broker(1).kill()
    cluster.broker(2).start()
    cluster.wait_until(lambda: cluster.describe(topic).partitions[0].leader is None, "a partition without a leader")
    wanted = tmp_path / "partitions.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    said = tool(cluster, "LeaderElectionCommand", "--election-type", "unclean", "--path-to-json-file", str(wanted))
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in said
    cluster.wait_until(lambda: cluster.describe(topic).partitions[0].leader == 2, "broker 2 leads")
    cluster.broker(1).start()
    cluster.wait_for_isr(topic)


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
            assert admin.topics.offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 30}
