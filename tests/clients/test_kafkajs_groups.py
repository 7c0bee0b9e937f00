"""kafkajs in consumer groups, and its transactions: the protocols of old, as much of the JavaScript world speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from clients.drivers import Refused
from clients.drivers.kafkajs import KafkaJs, why_not_installed
from clients.drivers.process import ProcessMember
from clients.group_members import Member
from clients.live_group import PARTITIONS, PROPERTIES, Group, unique
from clients.process_transactions import process, read_committed, send
from penstock.broker.coordinators.hashing import partition_for
from penstock.testing.clusters import start_cluster
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

NON_EMPTY_GROUP = 68
FENCED = (47, 90)  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
QUICK_SESSION_MS = 2000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    if reason := why_not_installed():
        pytest.skip(reason)
    properties = {**PROPERTIES, "group.min.session.timeout.ms": "1000"}
    with start_node(tmp_path_factory.mktemp("kafkajs-groups") / "node", properties=properties) as node:
        yield node


@pytest.fixture(scope="module")
def client(node: RunningNode) -> Iterator[KafkaJs]:
    with closing(KafkaJs(node.bootstrap)) as client:
        yield client


def member_of(client: KafkaJs, settings: dict[str, int], _: str, group: str, topic: str) -> Member:
    return ProcessMember(client, group, topic, settings)


def new_group(client: KafkaJs, bootstrap: str, replicas: int = 1, **settings: int) -> Group:
    return Group(bootstrap, partial(member_of, client, settings), replicas)


def test_members_come_and_go(node: RunningNode, client: KafkaJs) -> None:
    new_group(client, node.bootstrap).come_and_go()


def test_one_that_is_killed_is_replaced(node: RunningNode, client: KafkaJs) -> None:
    group = new_group(client, node.bootstrap, sessionTimeout=QUICK_SESSION_MS)
    group.join()
    victim = KafkaJs(node.bootstrap)
    try:
        settings = {"sessionTimeout": QUICK_SESSION_MS}
        group.members.append(ProcessMember(victim, group.name, group.topic, settings))
        group.settle()
    finally:
        victim.kill()
    del group.members[1]
    group.settle()
    group.send(30)
    group.read_all()
    group.end()


def test_groups_by_the_admin_client(node: RunningNode, client: KafkaJs) -> None:
    group = new_group(client, node.bootstrap)
    group.join(2)
    group.settle()
    group.send(60)
    group.read_all()
    group.commit()
    wait_until(lambda: client.call("describe_group", group=group.name)["state"] == "Stable")
    described = client.call("describe_group", group=group.name)
    assert described == {"state": "Stable", "protocol": "RoundRobinAssigner", "members": 2}
    assert group.name in client.call("groups")
    committed = {"group": group.name, "topic": group.topic}
    assert client.call("committed", **committed) == {str(index): 10 for index in range(PARTITIONS)}
    with pytest.raises(Refused) as refused:
        client.call("delete_group", group=group.name)
    assert refused.value.code == NON_EMPTY_GROUP
    group.end()
    client.call("set_offsets", offsets=[[index, 4] for index in range(PARTITIONS)], **committed)
    assert client.call("committed", **committed) == {str(index): 4 for index in range(PARTITIONS)}
    client.call("delete_group", group=group.name)
    assert group.name not in client.call("groups")


def process_all(client: KafkaJs, group: Group, target: str, transactional_id: str) -> None:
    process(client, group, target, transactional_id, 30, {}, group=group.name)
    client.call("end_producer", producer=transactional_id)


def test_transactions(node: RunningNode, client: KafkaJs) -> None:
    topic, name = unique("topic"), unique("id")
    client.create_topic(topic, 2, {})
    read = read_committed(client, topic, {})
    client.call("new_producer", producer="first", id=name)
    for value, end in (
        ("kept", "commit_transaction"),
        ("dropped", "abort_transaction"),
        ("also kept", "commit_transaction"),
    ):
        client.call("begin", producer="first")
        send(client, "first", topic, value)
        client.call(end, producer="first")
    wait_until(lambda: read() == ["also kept", "kept"])

    client.call("begin", producer="first")
    send(client, "first", topic, "a zombie's")
    client.call("new_producer", producer="second", id=name)
    client.call("begin", producer="second")
    send(client, "second", topic, "its successor's")
    with pytest.raises(Refused) as refused:
        client.call("commit_transaction", producer="first")
    assert refused.value.code in FENCED
    client.call("commit_transaction", producer="second")
    wait_until(lambda: read() == ["also kept", "its successor's", "kept"])


def test_read_process_write(node: RunningNode, client: KafkaJs) -> None:
    group = new_group(client, node.bootstrap)
    target = unique("target")
    client.create_topic(target, 2, {})
    read = read_committed(client, target, {})
    group.send(30)
    group.join()
    process_all(client, group, target, unique("id"))
    expected = sorted(map(str, range(30)))
    wait_until(lambda: read() == expected)
    committed = client.call("committed", group=group.name, topic=group.topic)
    assert committed == {str(index): 5 for index in range(PARTITIONS)}
    group.end()


@pytest.mark.soak
def test_coordinators_are_killed(tmp_path: Path) -> None:
    """On three brokers a group and its transactions go on with other coordinators."""
    if reason := why_not_installed():
        pytest.skip(reason)
    small = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    with (
        start_cluster(tmp_path, brokers=3, properties=PROPERTIES | small) as cluster,
        closing(KafkaJs(cluster.bootstrap)) as client,
    ):
        group = new_group(client, cluster.bootstrap, replicas=3)
        target, name = unique("target"), unique("id")
        cluster.create_topic(target, 2, 3)
        cluster.wait_for_isr(group.topic)
        read = read_committed(client, target, {})
        group.join()
        group.send(30)
        process_all(client, group, target, name)
        for topic, key in (("__consumer_offsets", group.name), ("__transaction_state", name)):
            cluster.wait_for_isr(topic)
            coordinator = cluster.leader_of(topic, partition_for(key, 3))
            coordinator.kill()
            group.send(30)
            process_all(client, group, target, name)
            coordinator.start()
        expected = sorted(map(str, range(90)))
        wait_until(lambda: read() == expected)
        group.end()
        wait_until(lambda: client.call("describe_group", group=group.name)["members"] == 0)  # those who left are gone
