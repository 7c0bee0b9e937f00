"""ACLs as other clients see them: confluent-kafka's administration, a producer and a consumer that are refused, and
Kafka's own tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from clients.drivers.java import JavaClient, class_path
from penstock.testing.nodes import RunningNode, start_node

DEADLINE_S = 60.0
# Clients on this listener are all User:ANONYMOUS. They may do what no ACL speaks of.
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
ANY_NAME: Any = None  # its annotations do not say that a filter may leave out a name
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, ANY_NAME, ResourcePatternType.ANY, ANY_NAME, ANY_NAME, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("acls") / "node", properties=PROPERTIES) as node:
        yield node


@pytest.fixture
def admin(node: RunningNode) -> Iterator[AdminClient]:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    yield admin
    for future in admin.delete_acls([EVERY_ACL]).values():
        future.result(DEADLINE_S)


def topic_acl(
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    host: str = "*",
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, "User:ANONYMOUS", host, operation, permission)


def create(admin: AdminClient, *acls: AclBinding) -> None:
    for future in admin.create_acls(list(acls)).values():
        future.result(DEADLINE_S)


def test_confluent_kafka_creates_describes_and_deletes(admin: AdminClient) -> None:
    read = topic_acl("orders", AclOperation.READ)
    ranged = topic_acl("ord", AclOperation.ALL, AclPermissionType.DENY, ResourcePatternType.PREFIXED, "10.0.0.0/8")
    create(admin, read, ranged)
    create(admin, read)
    assert set(admin.describe_acls(EVERY_ACL).result(DEADLINE_S)) == {read, ranged}
    matching = AclBindingFilter(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.MATCH,
        ANY_NAME,
        ANY_NAME,
        AclOperation.ANY,
        AclPermissionType.DENY,
    )
    assert admin.describe_acls(matching).result(DEADLINE_S) == [ranged]
    (future,) = admin.delete_acls([matching]).values()
    assert future.result(DEADLINE_S) == [ranged]
    assert admin.describe_acls(EVERY_ACL).result(DEADLINE_S) == [read]
    bad = topic_acl("orders", AclOperation.READ, host="10.0.0.0/77")
    (future,) = admin.create_acls([bad]).values()
    with pytest.raises(KafkaException) as refused:
        future.result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_a_producer_and_a_consumer_are_refused_and_let_in_again(
    node: RunningNode, admin: AdminClient, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("guarded")
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)

    def produced() -> KafkaError | None:
        # A new one each time: a producer that was refused remembers it until it asks for metadata again.
        producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
        outcome: list[KafkaError | None] = []
        producer.produce(topic, b"v", on_delivery=lambda error, _: outcome.append(error))
        assert producer.flush(DEADLINE_S) == 0
        return outcome[0]

    assert produced() is None
    create(admin, topic_acl(topic, AclOperation.READ))
    error = produced()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    create(admin, topic_acl(topic, AclOperation.WRITE))
    assert produced() is None

    create(admin, topic_acl(topic, AclOperation.READ, AclPermissionType.DENY))
    settings = {
        "bootstrap.servers": node.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_metadata_does_not_show_what_may_not_be_described(
    admin: AdminClient, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("hidden")
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    assert topic in admin.list_topics(timeout=DEADLINE_S).topics
    create(admin, topic_acl(topic, AclOperation.ALL, AclPermissionType.DENY))
    assert topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_kafkas_own_tool(node: RunningNode, admin: AdminClient) -> None:
    class_path()  # skips where there is no Java
    with closing(JavaClient(node.bootstrap)) as client:

        def tool(*arguments: str) -> str:
            options = ["--bootstrap-server", node.bootstrap, *arguments]
            outcome = client.call("tool", name="AclCommand", arguments=options)
            assert outcome["status"] == 0, outcome["output"]
            return str(outcome["output"])

        tool("--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "billing")
        tool("--add", "--deny-principal", "User:eve", "--deny-host", "10.1.2.3", "--operation", "Read", "--topic", "*")
        listed = tool("--list")
        for shown in (
            "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)",
            "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)",
            "(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW)",
            "ResourcePattern(resourceType=GROUP, name=billing, patternType=LITERAL)",
            "ResourcePattern(resourceType=TOPIC, name=*, patternType=LITERAL)",
            "(principal=User:eve, host=10.1.2.3, operation=READ, permissionType=DENY)",
        ):
            assert shown in listed
        covering = tool("--list", "--topic", "orders", "--resource-pattern-type", "match")
        assert "name=*" in covering
        assert "billing" not in covering
        tool("--remove", "--force", "--topic", "*")
        tool("--remove", "--force", "--group", "billing")
        left = admin.describe_acls(EVERY_ACL).result(DEADLINE_S)
        assert {(acl.name, acl.operation) for acl in left} == {
            ("orders", AclOperation.READ),
            ("orders", AclOperation.DESCRIBE),
        }
