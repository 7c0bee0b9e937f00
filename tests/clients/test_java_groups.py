"""Java's consumers in groups of both protocols, its transactional producers, and what its Admin client says of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clients.drivers import Refused
from clients.drivers.java import JavaClient, class_path
from clients.drivers.process import ProcessMember
from clients.group_members import Member
from clients.live_group import PARTITIONS, PROPERTIES, Group, unique
from clients.process_transactions import process, read_committed, send
from narrowing import expect
from penstock.broker.coordinators.hashing import partition_for
from penstock.testing.clusters import start_cluster
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

GROUP_ID_NOT_FOUND = 69
NON_EMPTY_GROUP = 68
UNKNOWN_MEMBER_ID = 25
GROUP_SUBSCRIBED_TO_TOPIC = 86
TRANSACTIONAL_ID_NOT_FOUND = 105
PRODUCER_FENCED = 90

CLASSIC = {"group.protocol": "classic", "session.timeout.ms": "6000", "heartbeat.interval.ms": "300"}
ASSIGNORS = "org.apache.kafka.clients.consumer"
KINDS = {
    "classic range": {**CLASSIC, "partition.assignment.strategy": f"{ASSIGNORS}.RangeAssignor"},
    "classic cooperative": {**CLASSIC, "partition.assignment.strategy": f"{ASSIGNORS}.CooperativeStickyAssignor"},
    "consumer uniform": {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
    "consumer range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}
COMMITTED = {**KINDS["consumer uniform"], "isolation.level": "read_committed"}
IN_SMALL_STEPS = {**KINDS["consumer uniform"], "max.poll.records": "7"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    class_path()  # skips where there is no Java
    properties = {**PROPERTIES, "group.min.session.timeout.ms": "1000"}
    with start_node(tmp_path_factory.mktemp("java-groups") / "node", properties=properties) as node:
        yield node


@pytest.fixture(scope="module")
def client(node: RunningNode) -> Iterator[JavaClient]:
    with closing(JavaClient(node.bootstrap)) as client:
        yield client


def member_of(client: JavaClient, settings: dict[str, str], _: str, group: str, topic: str) -> Member:
    return ProcessMember(client, group, topic, settings)


def new_group(client: JavaClient, bootstrap: str, kind: str, replicas: int = 1, **settings: str) -> Group:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return Group(bootstrap, partial(member_of, client, KINDS[kind] | dotted), replicas)


@pytest.mark.parametrize("kind", list(KINDS))
def test_members_come_and_go(node: RunningNode, client: JavaClient, kind: str) -> None:
    new_group(client, node.bootstrap, kind).come_and_go()


@pytest.mark.parametrize("kind", ["classic cooperative", "consumer uniform"])
def test_a_static_member_keeps_its_place(node: RunningNode, client: JavaClient, kind: str) -> None:
    group = new_group(client, node.bootstrap, kind)
    group.join()
    restarting = partial(member_of, client, KINDS[kind] | {"group.instance.id": "static"}, "", group.name, group.topic)
    group.members.append(restarting())
    group.settle()
    was_given = group.members[1].assignment()
    rebalances = len(group.members[0].given)
    group.leave()
    group.members.append(restarting())
    group.poll_until(lambda: group.members[1].assignment() == was_given, "the static member has not come back")
    assert len(group.members[0].given) == rebalances  # and the other members have not noticed
    described = client.call("describe_group", group=group.name)
    assert sorted(each["instance"] for each in described["members"]) == ["", "static"]
    expect(ProcessMember, group.members[1]).call("vanish")
    client.call("remove_members", group=group.name, instances=["static"])
    del group.members[1]
    group.settle()
    group.end()


def test_one_that_is_killed_is_replaced(node: RunningNode, client: JavaClient) -> None:
    group = new_group(client, node.bootstrap, "classic range", session_timeout_ms="2000")
    group.join(2)
    group.settle()
    expect(ProcessMember, group.members.pop()).call("vanish")
    group.settle()
    group.send(30)
    group.read_all()
    group.end()


@pytest.mark.parametrize("kind", ["classic cooperative", "consumer uniform"])
def test_topics_by_pattern(node: RunningNode, client: JavaClient, kind: str) -> None:
    prefix = unique("pattern")

    def create(number: int) -> None:
        client.call("create_topic", topic=f"{prefix}-{number}", partitions=1, configs={})

    create(1)
    create(2)
    member = client.call("join", group=unique("group"), pattern=f"{prefix}-[0-9]", settings=KINDS[kind])

    def poll_until_assigned(*numbers: int) -> None:
        wanted = [f"{prefix}-{number}" for number in numbers]
        wait_until(
            lambda: client.call("assigned_topics", member=member) == wanted,
            between=lambda: client.call("poll", member=member),
        )

    poll_until_assigned(1, 2)
    if kind.startswith("classic"):  # in the other protocol the broker looks for new ones every ten seconds
        create(3)
        poll_until_assigned(1, 2, 3)
    client.call("leave", member=member)


@pytest.mark.parametrize(("kind", "protocol"), [("classic range", "Classic"), ("consumer range", "Consumer")])
def test_groups_by_the_admin_client(node: RunningNode, client: JavaClient, kind: str, protocol: str) -> None:
    group = new_group(client, node.bootstrap, kind, client_id="me")
    name, topic = group.name, group.topic
    with pytest.raises(Refused) as refused:
        client.call("describe_group", group=name)
    assert refused.value.code == GROUP_ID_NOT_FOUND
    group.join(2)
    group.settle()
    group.send(60)
    group.read_all()
    group.commit()
    wait_until(lambda: client.call("describe_group", group=name)["state"] == "Stable")
    described = client.call("describe_group", group=name)
    assert (described["type"], described["assignor"], described["coordinator"]) == (protocol, "range", node.node_id)
    assert [each["clientId"] for each in described["members"]] == ["me", "me"]
    everything = sorted(each for member in described["members"] for each in member["partitions"])
    assert everything == [[topic, index] for index in range(PARTITIONS)]
    assert client.call("groups", states=[], types=[])[name] == ["Stable", protocol]
    assert name in client.call("groups", states=["Stable"], types=[protocol])
    assert name not in client.call("groups", states=["Empty"], types=[])
    assert client.call("committed", group=name) == {f"{topic}-{index}": 10 for index in range(PARTITIONS)}

    refusals = {
        "delete_group": ({}, NON_EMPTY_GROUP),
        "alter_offsets": ({"offsets": [[topic, 0, 5]]}, UNKNOWN_MEMBER_ID),
        "delete_offsets": ({"partitions": [[topic, 0]]}, GROUP_SUBSCRIBED_TO_TOPIC),
    }
    for operation, (arguments, code) in refusals.items():
        with pytest.raises(Refused) as refused:
            client.call(operation, group=name, **arguments)
        assert refused.value.code == code, operation

    group.end()
    assert client.call("groups", states=["Empty"], types=[])[name] == ["Empty", protocol]
    client.call("alter_offsets", group=name, offsets=[[topic, 0, 5]])
    client.call("delete_offsets", group=name, partitions=[[topic, index] for index in range(1, PARTITIONS)])
    assert client.call("committed", group=name) == {f"{topic}-0": 5}
    client.call("delete_group", group=name)
    assert name not in client.call("groups", states=[], types=[])


def test_an_administrator_takes_all_members_out(node: RunningNode, client: JavaClient) -> None:
    group = new_group(client, node.bootstrap, "classic range")
    group.join(2)
    group.settle()
    client.call("remove_members", group=group.name, instances=[])
    assert client.call("describe_group", group=group.name)["state"] == "Empty"
    group.settle()  # they join again
    group.end()


def test_read_process_write(node: RunningNode, client: JavaClient) -> None:
    group = new_group(client, node.bootstrap, "consumer uniform", max_poll_records="7")
    target = unique("target")
    client.call("create_topic", topic=target, partitions=2, configs={})
    read = read_committed(client, target, COMMITTED)
    group.send(30)
    group.join()
    process(client, group, target, unique("id"), 30, IN_SMALL_STEPS)
    expected = sorted(map(str, range(30)))
    wait_until(lambda: read() == expected)
    group.end()
    assert client.call("committed", group=group.name) == {f"{group.topic}-{index}": 5 for index in range(PARTITIONS)}


def test_transactions_by_the_admin_client(node: RunningNode, client: JavaClient) -> None:
    topic, name = unique("topic"), unique("id")
    client.call("create_topic", topic=topic, partitions=1, configs={})
    with pytest.raises(Refused) as refused:
        client.call("describe_transaction", id=name)
    assert refused.value.code == TRANSACTIONAL_ID_NOT_FOUND
    client.call("new_producer", producer="first", id=name)
    assert client.call("transactions", pattern=f"{name}.*") == {name: "Empty"}
    client.call("begin", producer="first")
    send(client, "first", topic, "lost")
    described = client.call("describe_transaction", id=name)
    assert (described["state"], described["isOpen"], described["partitions"]) == ("Ongoing", True, [[topic, 0]])
    assert described["timeoutMs"] == 60_000
    (producer,) = client.call("producers", topic=topic, partition=0)
    assert (producer["id"], producer["epoch"]) == (described["producerId"], described["producerEpoch"])
    assert producer["transactionStart"] == 0

    client.call("fence", id=name)
    wait_until(lambda: client.call("describe_transaction", id=name)["state"] in ("CompleteAbort", "Empty"))
    with pytest.raises(Refused) as refused:
        client.call("commit_transaction", producer="first")
    assert refused.value.code == PRODUCER_FENCED
    client.call("new_producer", producer="second", id=name)
    client.call("begin", producer="second")
    send(client, "second", topic, "kept")
    client.call("commit_transaction", producer="second")
    read = read_committed(client, topic, COMMITTED)
    wait_until(lambda: read() == ["kept"])

    client.call("begin", producer="second")
    send(client, "second", topic, "hanging")
    (producer,) = client.call("producers", topic=topic, partition=0)
    abort: dict[str, Any] = {"producerId": producer["id"], "producerEpoch": producer["epoch"]}
    epoch = max(0, producer["coordinatorEpoch"])
    client.call("abort_hanging", topic=topic, partition=0, coordinatorEpoch=epoch, **abort)
    (producer,) = client.call("producers", topic=topic, partition=0)
    assert producer["transactionStart"] == -1


@pytest.mark.soak
def test_coordinators_are_killed(tmp_path: Path) -> None:
    """On three brokers a group and its transactions go on with other coordinators."""
    class_path()
    small = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
    with (
        start_cluster(tmp_path, brokers=3, properties=PROPERTIES | small) as cluster,
        closing(JavaClient(cluster.bootstrap)) as client,
    ):
        group = new_group(client, cluster.bootstrap, "consumer uniform", replicas=3, max_poll_records="7")
        target, name = unique("target"), unique("id")
        cluster.create_topic(target, 2, 3)
        cluster.wait_for_isr(group.topic)
        read = read_committed(client, target, COMMITTED)
        group.join()
        group.send(30)
        process(client, group, target, name, 30, IN_SMALL_STEPS)
        for topic, key in (("__consumer_offsets", group.name), ("__transaction_state", name)):
            cluster.wait_for_isr(topic)
            coordinator = cluster.leader_of(topic, partition_for(key, 3))
            coordinator.kill()
            group.send(30)
            process(client, group, target, name, 30, IN_SMALL_STEPS)
            coordinator.start()
        expected = sorted(map(str, range(90)))
        wait_until(lambda: read() == expected)
        group.end()
