"""A real broker on SASL_SSL with SCRAM users and ACLs: confluent-kafka's clients, our own, and strangers."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from penstock.client.errors import NotAuthorized, Unreachable
from penstock.client.wire.admin import Acl, Admin
from penstock.model.errors import ErrorCode
from penstock.model.errors import KafkaError as Refused
from penstock.testing.nodes import RunningNode, start_node
from penstock.tls.authority import Authority
from security.sasl_world import USERS, options

NOW = datetime.datetime.now(datetime.UTC)
CA = Authority.create("Test CA", NOW)
PASSWORD = "a users password"
VALUES = [f"value-{number}".encode() * 100 for number in range(200)]


class SecureNode:
    def __init__(self, node: RunningNode, authorities: Path) -> None:
        self.bootstrap = node.bootstrap
        self._authorities = authorities

    def admin(self, user: str, password: str) -> Admin:
        return Admin(self.bootstrap, options=admin_options(self._authorities, user, password))

    def librdkafka(self, user: str, **more: str) -> dict[str, str]:
        return {
            **options("SCRAM-SHA-512", user, PASSWORD),
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authorities),
            **more,
        }


def admin_options(authorities: Path, user: str, password: str) -> dict[str, str]:
    return {
        **options("SCRAM-SHA-512", user, password),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
    }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    directory = tmp_path_factory.mktemp("sasl-ssl")
    authorities, keys = directory / "ca.pem", directory / "node.pem"
    authorities.write_text(CA.certificate)
    keys.write_text(CA.issue("node-1", ["localhost", "127.0.0.1"], NOW).pem)
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.plaintext.plain.sasl.jaas.config": USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "group.initial.rebalance.delay.ms": "0",
    }
    root = {**admin_options(authorities, "", ""), **options(), "security.protocol": "SASL_SSL"}
    with start_node(directory / "node", properties=properties, client_options=root) as running:
        with Admin(running.bootstrap, options=root) as admin:
            for user in ("alice", "eve"):
                admin.users.set_password(user, PASSWORD)
            admin.topics.create("orders", partitions=1)
            allowed = [("WRITE", "TOPIC", "orders"), ("READ", "TOPIC", "orders"), ("READ", "GROUP", "billing")]
            admin.acls.create(
                Acl(principal="User:alice", operation=operation, resource_type=kind, resource=name)
                for operation, kind, name in allowed
            )
        yield SecureNode(running, authorities)


def outcome_of_producing(settings: dict[str, str], values: list[bytes]) -> set[int | None]:
    outcomes: set[int | None] = set()

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcomes.add(None if error is None else error.code())

    producer = Producer(settings)
    for value in values:
        producer.produce("orders", value, on_delivery=delivered)
    assert producer.flush(60) == 0
    return outcomes


def test_who_may_writes_and_reads(node: SecureNode) -> None:
    assert outcome_of_producing(node.librdkafka("alice"), VALUES) == {None}
    more = {"group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer(node.librdkafka("alice", **more))
    consumer.subscribe(["orders"])
    found: list[bytes | None] = []
    while len(found) < len(VALUES):
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        found.append(message.value())
    consumer.close()
    assert found == VALUES


def test_who_may_not_is_refused(node: SecureNode) -> None:
    assert outcome_of_producing(node.librdkafka("eve"), [b"x"]) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def test_our_own_client_is_the_user_of_its_login(node: SecureNode) -> None:
    with node.admin("alice", PASSWORD) as admin, pytest.raises(Refused) as refusal:
        admin.topics.create("more", partitions=1)
    assert refusal.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_wrong_password_is_refused(node: SecureNode) -> None:
    with node.admin("alice", "wrong") as admin, pytest.raises(NotAuthorized, match="cannot log in"):
        admin.cluster.describe()


def test_a_client_does_not_talk_to_a_broker_it_does_not_trust(node: SecureNode, tmp_path: Path) -> None:
    others = tmp_path / "others.pem"
    others.write_text(Authority.create("Other CA", NOW).certificate)
    with (
        Admin(node.bootstrap, options=admin_options(others, "alice", PASSWORD)) as admin,
        pytest.raises(Unreachable, match="the TLS handshake failed"),
    ):
        admin.cluster.describe()
