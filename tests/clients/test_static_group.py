"""A group of static members: one that returns under its name causes no rebalance, one that unsubscribes leaves.

The course of librdkafka's test of static membership (0102), with kafka-python's members beside its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest

from clients.drivers import DEADLINE_S
from clients.librdkafka import close
from clients.live_group import PROPERTIES
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

ASSIGN, REVOKE = "assign", "revoke"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("static") / "node", properties=PROPERTIES) as node:
        yield node


@pytest.fixture
def topic(node: RunningNode) -> str:
    name = f"static-{uuid.uuid4().hex[:8]}"
    with Admin(node.bootstrap, timeout=DEADLINE_S) as admin:
        admin.topics.create(name, partitions=3)
    return name


class Confluent:
    """What happens to it is noted in `events`."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.events: list[str] = []
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-readers",
                "group.instance.id": name,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        self.subscribe()

    def subscribe(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._note(ASSIGN), on_revoke=self._note(REVOKE))

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def _note(self, event: str) -> Callable[..., None]:
        return lambda consumer, partitions: self.events.append(event)

    def poll(self) -> None:
        self._consumer.poll(0.05)

    def assignment(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        close(self._consumer)


class KafkaPython(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.events: list[str] = []
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-readers",
            group_instance_id=name,
            session_timeout_ms=30_000,
            heartbeat_interval_ms=200,
        )
        self._consumer.subscribe([topic], listener=self)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.events.append(ASSIGN)

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.events.append(REVOKE)

    def poll(self) -> None:
        self._consumer.poll(timeout_ms=300)

    def assignment(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


def settle(members: list[Any], *shares: int) -> None:
    def assigned() -> list[int]:
        return sorted(member.assignment() for member in members)

    def poll() -> None:
        for member in members:
            member.poll()

    wait_until(lambda: assigned() == sorted(shares), lambda: f"{shares}, not {assigned()}", between=poll)


@pytest.mark.parametrize("kind", [Confluent, KafkaPython], ids=["confluent", "kafka-python"])
def test_a_static_member_keeps_its_place(node: RunningNode, topic: str, kind: Any) -> None:
    stays, comes = (kind(node.bootstrap, topic, name) for name in ("one", "two"))
    settle([stays, comes], 1, 2)
    stays.events.clear()
    # It restarts within its session: it has what it had, and the other notices nothing.
    comes.close()
    comes = kind(node.bootstrap, topic, "two")
    settle([comes], 3 - stays.assignment())
    assert comes.events == [ASSIGN]
    for _ in range(10):
        stays.poll()
    assert stays.events == []
    stays.close()
    comes.close()


def test_a_static_member_that_unsubscribes_leaves(node: RunningNode, topic: str) -> None:
    stays, leaves = (Confluent(node.bootstrap, topic, name) for name in ("one", "two"))
    settle([stays, leaves], 1, 2)
    stays.events.clear()
    leaves.unsubscribe()
    settle([stays, leaves], 3, 0)
    leaves.subscribe()
    settle([stays, leaves], 1, 2)
    assert stays.events == [REVOKE, ASSIGN, REVOKE, ASSIGN]
    stays.close()
    leaves.close()
