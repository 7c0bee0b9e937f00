"""Admin's groups and log directories against real brokers: new ones, old ones, and some that die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from clients.librdkafka import close
from penstock.client.errors import UnsupportedApi
from penstock.client.wire.admin import Admin
from penstock.client.wire.admin.group_members import classic_group
from penstock.client.wire.admin.group_reset import time_of
from penstock.client.wire.admin.groups import CommittedOffset, GroupDescription
from penstock.client.wire.connection import Connection
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.apis import ApiKey
from penstock.protocol.codec import encode
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.testing.clusters import start_cluster
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

DEADLINE_S = 60
# What Kafka 2.0 served of these.
OLD = {
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.OFFSET_FETCH: 4,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.METADATA: 6,
    ApiKey.LIST_OFFSETS: 3,
}
UNKNOWN_THEN = (
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.OFFSET_DELETE,
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with start_node(tmp_path_factory.mktemp("admin") / "node", properties=properties) as node:
        yield node


@pytest.fixture(params=["new", "old"])
def admin(node: RunningNode, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    if request.param == "old":
        connect = Connection.__init__

        def connect_to_an_old_broker(connection: Connection, *arguments: Any, **options: Any) -> None:
            connect(connection, *arguments, **options)
            for key, version in OLD.items():
                connection.versions[key] = (connection.versions[key][0], version)
            for key in UNKNOWN_THEN:
                del connection.versions[key]

        monkeypatch.setattr(Connection, "__init__", connect_to_an_old_broker)
    with Admin(node.bootstrap, timeout=DEADLINE_S) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin, unique_topic: Callable[[str], str]) -> str:
    return admin.topics.create(unique_topic("orders"), partitions=2).name


def stable(admin: Admin, group: str, consumer: Consumer) -> GroupDescription:
    """Once the consumer knows its assignment, too: librdkafka hangs if it is closed in between."""

    def found() -> GroupDescription | None:
        each = admin.groups.find(group)
        is_stable = each is not None and each.state == "Stable" and each.owners() and consumer.assignment()
        return each if is_stable else None

    return wait_until(found, lambda: f"stable: {admin.groups.find(group)}", between=lambda: consumer.poll(0.05))


def test_groups_of_any_broker(admin: Admin, node: RunningNode, topic: str, unique_topic: Callable[[str], str]) -> None:
    group = unique_topic("billing")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.groups.find(group) is None
    assert admin.groups.offsets(group) == {}
    admin.groups.alter_offsets(group, {first: 0, second: CommittedOffset(0, metadata="by hand")})
    assert admin.groups.offsets(group)[second].metadata == "by hand"

    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.instance.id": "one",
            "client.id": "worker",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    try:
        described = stable(admin, group, consumer)
        assert (described.type, described.protocol_type, described.assignor) == ("classic", "consumer", "range")
        (member,) = described.members
        assert (member.client_id, member.topics, member.assignment) == ("worker", (topic,), (first, second))
        assert [(each.partition, each.committed, each.end, each.lag) for each in admin.groups.lag(group)] == [
            (0, 0, 0, 0),
            (1, 0, 0, 0),
        ]
        assert {each.member_id for each in admin.groups.lag(group)} == {member.member_id}
        with pytest.raises(KafkaError, match=r"worker on 127\.0\.0\.1") as caught:
            admin.groups.alter_offsets(group, {first: 0})
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        (listed,) = [each for each in admin.groups.list(types=["classic"]) if each.group_id == group]
        assert listed.coordinator == node.node_id
    finally:
        close(consumer)  # a static member stays
    admin.groups.remove_members(group)
    (emptied,) = admin.groups.describe([group])
    assert emptied.members == ()
    admin.groups.delete([group])
    assert admin.groups.find(group) is None
    with pytest.raises(KafkaError, match="cannot delete group") as gone:
        admin.groups.delete([group])
    assert gone.value.code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("admin", ["old"], indirect=True)
def test_what_old_brokers_cannot_do_is_said(admin: Admin) -> None:
    for attempt in (
        lambda: admin.groups.list(states=["Empty"]),
        lambda: admin.groups.remove_members("any", instances=["one"]),
        lambda: admin.transactions.list(),
        lambda: admin.groups.delete_offsets("any", [TopicPartition("any", 0)]),
    ):
        with pytest.raises(UnsupportedApi):
            attempt()


def test_members_that_cannot_be_understood() -> None:
    """Kafka Connect has bytes of its own, newer consumers add to theirs, and anybody may send nonsense."""
    subscription = b"\0\x09" + encode(ConsumerProtocolSubscription(topics=["b", "a"], rack_id="r1"), 3) + b"more"
    assigned = ConsumerProtocolAssignmentTopicPartition(topic="a", partitions=[1, 0])
    assignment = b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=[assigned]), 0)

    def described(protocol_type: str, metadata: bytes, assignment: bytes) -> tuple[object, object, object]:
        member = DescribedGroupMember(
            member_id="m",
            client_id="c",
            client_host="/10.0.0.1",
            member_metadata=metadata,
            member_assignment=assignment,
        )
        group = classic_group(DescribedGroup(group_id="g", protocol_type=protocol_type, members=[member]), 1)
        (found,) = group.members
        assert found.host == "10.0.0.1"
        return found.topics, found.rack, found.assignment

    assert described("consumer", subscription, assignment) == (
        ("a", "b"),
        "r1",
        (TopicPartition("a", 0), TopicPartition("a", 1)),
    )
    nothing = ((), None, ())
    assert described("connect", subscription, assignment) == nothing
    assert described("consumer", b"", b"") == nothing
    assert described("consumer", b"\0\0\x7f\xff\xff\xff", b"\xff\xff") == nothing


def test_times_to_reset_to() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert time_of(datetime(1970, 1, 1, 0, 0, 1, 5000, tzinfo=UTC), now) == 1005
    assert time_of(datetime(1960, 1, 1, tzinfo=UTC), now) == 0
    assert time_of(timedelta(hours=1), now) == int(now.timestamp() * 1000) - 3_600_000
    assert time_of("earliest", now) is None
    with pytest.raises(ValueError, match="no time zone"):
        time_of(datetime(2026, 5, 1), now)


def test_log_directories(admin: Admin, node: RunningNode, topic: str) -> None:
    (directory,) = admin.log_dirs.describe()
    assert (directory.broker_id, directory.path, directory.error) == (node.node_id, node.data_directory, None)
    assert [each.partition for each in directory.replicas if each.topic == topic] == [0, 1]
    assert directory.total_bytes
    with Admin(node.bootstrap, timeout=0.2) as impatient, pytest.raises(KafkaError) as caught:
        impatient.log_dirs.describe([99])
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_a_coordinator_that_dies_is_replaced(tmp_path: Path) -> None:
    """One Admin, before and after: it finds the new coordinator, and that its connections are gone."""
    with start_cluster(tmp_path, brokers=3, properties={"offsets.topic.num.partitions": "3"}) as cluster:
        cluster.create_topic("orders", partitions=1)
        with Admin(cluster.bootstrap, timeout=DEADLINE_S) as admin:
            admin.groups.alter_offsets("billing", {TopicPartition("orders", 0): 0})
            (before,) = admin.groups.describe(["billing"])
            cluster.broker(before.coordinator).kill()
            (after,) = admin.groups.describe(["billing"])
            assert after.coordinator != before.coordinator
            assert admin.groups.offsets("billing") == {TopicPartition("orders", 0): CommittedOffset(0)}
            assert [each.group_id for each in admin.groups.list()] == ["billing"]
