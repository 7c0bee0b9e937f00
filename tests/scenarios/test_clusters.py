"""Three brokers and three controllers that behave as one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from clients.librdkafka import close
from narrowing import present
from penstock.client.wire.admin import Admin
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.shares.states import AcknowledgeType
from penstock.simulator.requests import records
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode
from share_member import Member as ShareMember
from share_member import acquired
from share_member import initialize as initialize_share_group
from waiting import wait_until
from wire import Wire, fetch, metadata_of

if TYPE_CHECKING:
    from conftest import CommandLine

PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, properties=PROPERTIES) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _everything_runs(cluster: RunningCluster) -> Iterator[None]:
    yield
    for node in (*cluster.controllers, *cluster.brokers):
        if not node.running:
            node.begin_start()
    for node in (*cluster.controllers, *cluster.brokers):
        node.wait_ready()


def write(bootstrap: str, topic: str, values: list[str], settings: dict[str, object] | None = None) -> None:
    """To partition 0, all acknowledged."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, **(settings or {})})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not refused


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    """The first so many values of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            for message in consumer.consume(count - len(found), timeout=1):
                assert message.error() is None, message.error()
                found.append(present(message.value()).decode())
        return found
    finally:
        close(consumer)


def in_sync(cluster: RunningCluster, topic: str) -> set[int]:
    return set(cluster.describe(topic).partitions[0].isr)


def test_every_broker_tells_of_the_whole_cluster(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("known")
    cluster.create_topic(topic, 6)
    seen = []
    for broker in cluster.brokers:
        with Admin(broker.bootstrap) as admin:
            described = admin.cluster.describe()
            seen.append((described.cluster_id, described.brokers, admin.topics.describe([topic])))
            assert described.under_replicated == described.offline == ()
            assert described.quorum is not None
            assert {voter.node_id for voter in described.quorum.voters} == {10_001, 10_002, 10_003}
            assert described.quorum.leader_id in (10_001, 10_002, 10_003)
            assert {observer.node_id for observer in described.quorum.observers} == {1, 2, 3}
    assert seen[0] == seen[1] == seen[2]
    _, brokers, (description,) = seen[0]
    assert [broker.broker_id for broker in brokers] == [1, 2, 3]
    assert description.replication_factor == 3
    assert sorted(partition.leader or 0 for partition in description.partitions) == [1, 1, 2, 2, 3, 3]


def test_every_replica_tells_of_its_producers(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    """As `kafka-transactions find-hanging --broker-id` asks one broker, whatever it leads."""
    topic = unique_topic("producers")
    cluster.create_topic(topic, partitions=1, replicas=2)
    write(cluster.bootstrap, topic, ["a"])
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    replicas = cluster.describe(topic).partitions[0].replicas
    leader = cluster.leader_of(topic, 0)
    known = []
    for node in sorted(cluster.brokers, key=lambda node: node is not leader):
        with Wire(node) as wire:
            (answer,) = wire.ask(request).topics[0].partitions
        if node.node_id in replicas:
            assert answer.error_code == ErrorCode.NONE
            known.append([(producer.producer_id, producer.last_sequence) for producer in answer.active_producers])
        else:
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert known[0] == known[1] != []


def test_any_broker_takes_changes(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    """Brokers pass on to the active controller what is its to do."""
    for broker in cluster.brokers:
        topic = unique_topic("passed-on")
        with Admin(broker.bootstrap) as admin:
            admin.topics.create(topic, partitions=1)
            cluster.wait_for_isr(topic)
            admin.topics.delete(topic)


@pytest.mark.parametrize("survivor", [1, 2, 3])
def test_one_of_three_brokers_is_enough(
    cluster: RunningCluster, unique_topic: Callable[[str], str], survivor: int
) -> None:
    topic = unique_topic("stubborn")
    cluster.create_topic(topic, 1, 3, {"min.insync.replicas": "1"})
    write(cluster.bootstrap, topic, ["before"])
    others = [broker for broker in cluster.brokers if broker.node_id != survivor]
    for broker in others:
        broker.kill()
    write(cluster.bootstrap, topic, ["meanwhile"])
    assert read(cluster.bootstrap, topic, 2) == ["before", "meanwhile"]
    assert in_sync(cluster, topic) == {survivor}
    for broker in others:
        broker.start()
    cluster.wait_for_isr(topic)
    write(cluster.bootstrap, topic, ["after"])
    assert read(cluster.bootstrap, topic, 3) == ["before", "meanwhile", "after"]


def test_too_few_replicas_refuse_what_they_could_lose(
    cluster: RunningCluster, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("careful")
    cluster.create_topic(topic, 1, 3, {"min.insync.replicas": "2"})
    first, second = cluster.brokers[:2]
    first.kill()
    write(cluster.bootstrap, topic, ["two are enough"])
    second.kill()
    cluster.wait_until(lambda: in_sync(cluster, topic) == {3}, "an ISR of one")
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0})
    producer.produce(topic, "one is not", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors[0] is not None
    assert errors[0].code() in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    first.start()
    second.start()
    cluster.wait_for_isr(topic)
    write(cluster.bootstrap, topic, ["again"])
    assert read(cluster.bootstrap, topic, 2) == ["two are enough", "again"]


def test_a_stopped_broker_hands_its_leaderships_over(
    cluster: RunningCluster, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("handed-over")
    cluster.create_topic(topic, 3)
    leader = cluster.leader_of(topic, 0)
    assert leader.stop() == 0
    described = cluster.describe(topic)
    assert all(partition.leader not in (None, leader.node_id) for partition in described.partitions)
    leader.start()
    cluster.wait_for_isr(topic)


def wait_for_replicas(cluster: RunningCluster, topic: str, replicas: list[list[int]]) -> None:
    """As any broker tells it: the one that is asked may be the last to know."""
    cluster.wait_until(
        lambda: [list(each.replicas) for each in cluster.describe(topic).partitions] == replicas,
        f"replicas {replicas} of {topic}",
    )


def test_partitions_move_to_other_brokers(
    cluster: RunningCluster, unique_topic: Callable[[str], str], cli: CommandLine
) -> None:
    topic = unique_topic("moved")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[1, 2], [1, 2], [1, 2]])
    write(cluster.bootstrap, topic, ["kept"])
    address = ("-b", cluster.bootstrap)
    assert cli("topics", "reassign", topic, "--replicas", "0:3,2", "--wait", *address).status == 0
    wait_for_replicas(cluster, topic, [[3, 2], [1, 2], [1, 2]])
    assert read(cluster.bootstrap, topic, 1) == ["kept"]
    rows = json.loads(cli("topics", "reassign", topic, "--brokers", "1,2,3", "--wait", "--json", *address).out)
    assert sorted(row["replicas"][0] for row in rows) == [1, 2, 3]
    assert sorted(broker for row in rows for broker in row["replicas"]) == [1, 1, 2, 2, 3, 3]
    wait_for_replicas(cluster, topic, [row["replicas"] for row in rows])
    assert "no partition is on the move" in cli("topics", "reassignments", *address).err


def test_a_move_to_a_broker_that_is_away_can_be_cancelled(
    cluster: RunningCluster, unique_topic: Callable[[str], str], cli: CommandLine
) -> None:
    topic = unique_topic("stuck")
    with cluster.admin() as admin:
        admin.topics.create(topic, assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
    cluster.broker(3).kill()
    address = ("-b", cluster.bootstrap)
    assert cli("topics", "reassign", topic, "--replicas", "0:3", *address).status == 0
    (moving,) = json.loads(cli("topics", "reassignments", "--json", *address).out)
    assert (moving["topic"], moving["adding"], moving["removing"]) == (topic, [3], [1, 2])
    assert cli("topics", "reassign", topic, "--cancel", *address).out == f"cancelled {topic}-0\n"
    wait_for_replicas(cluster, topic, [[1, 2]])
    assert "no partition is on the move" in cli("topics", "reassign", topic, "--cancel", *address).err
    for wrong in (("--replicas", "0"), ("--brokers", "1,x"), ("--brokers", "77"), ("--replicas", "9:1"), ()):
        refused = cli("topics", "reassign", topic, *wrong, *address)
        assert refused.status == 1
        assert refused.err.count("\n") == 1


def test_metadata_survives_the_active_controller(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    before = cluster.active_controller()
    before.kill()
    topic = unique_topic("elsewhere")
    cluster.create_topic(topic, 2)
    assert cluster.active_controller().node_id != before.node_id
    before.start()


def test_a_batch_that_rots_on_one_disk_is_repaired(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("rotten")
    cluster.create_topic(topic, 1, 3, {"min.insync.replicas": "2"})
    values = [f"{number} {'x' * 100}" for number in range(2000)]
    write(cluster.bootstrap, topic, values, {"batch.num.messages": 50})
    leader = cluster.leader_of(topic, 0)
    assert leader.stop() == 0
    path = os.path.join(leader.partition_directory(topic, 0), f"{0:020d}.log")
    with open(path, "r+b") as file:
        whole = file.read()
        file.seek(len(whole) // 2)
        file.write(bytes([whole[len(whole) // 2] ^ 1]))
    leader.start()
    cluster.wait_for_isr(topic)
    with Wire(leader) as wire:
        found: list[bytes | None] = []

        def is_read() -> bool:
            answer = fetch(wire, topic, len(found))
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)
            for record in records(answer.records):
                if record.offset == len(found):
                    found.append(record.value)
            return len(found) == len(values)

        cluster.wait_until(is_read, "all is read from it")
    assert found == [value.encode() for value in values]
    with open(path, "rb") as repaired:
        assert repaired.read() == whole


def test_a_restarted_cluster_is_the_same(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    topic = unique_topic("kept")
    cluster.create_topic(topic, 1)
    write(cluster.bootstrap, topic, ["a", "b"])
    nodes: list[RunningNode] = [*cluster.brokers, *cluster.controllers]
    for node in nodes:
        assert node.stop() == 0
    for node in nodes:
        node.begin_start()
    for node in nodes:
        node.wait_ready()
    cluster.wait_for_isr(topic)
    write(cluster.bootstrap, topic, ["c"])
    assert read(cluster.bootstrap, topic, 3) == ["a", "b", "c"]


def test_share_group_survives_its_leader(cluster: RunningCluster, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("queue")
    with Admin(cluster.bootstrap) as admin:
        admin.topics.create(name, partitions=1, replication_factor=3)
    write(cluster.bootstrap, name, ["a", "b", "c", "d"])
    former = cluster.leader_of(name, 0)
    with Wire(former) as wire, Wire(next(node for node in cluster.brokers if node is not former)) as other:
        topic_id = metadata_of(wire, name).topic_id
        initialize_share_group(wire, name, topic_id)
        misled = ShareMember(other, name, topic_id).fetch(0)[0]
        assert (misled.error_code, misled.current_leader.leader_id) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            former.node_id,
        )
        member = ShareMember(wire, name, topic_id)
        assert member.acquire(max_wait_ms=30_000) == [(0, 3, 1)]
        acks = [(0, 0, AcknowledgeType.ACCEPT), (1, 2, AcknowledgeType.RELEASE)]
        assert member.acknowledge(acks) is ErrorCode.NONE
        assert member.acquire(max_wait_ms=30_000) == [(1, 2, 2)]
        former.kill()
    wait_until(lambda: cluster.leader_of(name, 0) is not former)
    with Wire(cluster.leader_of(name, 0)) as wire:
        member = ShareMember(wire, name, topic_id)
        found: list[tuple[int, int, int]] = []

        def has_found() -> bool:
            found.extend(_acquire_leniently(member))
            return bool(found)

        wait_until(has_found)
        assert found == [(1, 2, 2), (3, 3, 1)]


def _acquire_leniently(member: ShareMember) -> list[tuple[int, int, int]]:
    """The share coordinator may have died, too."""
    member.epoch = 0
    result = member.fetch(0, max_wait_ms=5000).get(0)
    return [] if result is None or result.error_code else acquired(result)
