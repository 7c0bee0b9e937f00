"""Refusals and administrative changes as records of a topic, from brokers and controllers."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports
from penstock.model.errors import ErrorCode, KafkaError
from penstock.testing.clusters import start_cluster
from penstock.testing.nodes import start_node
from security.sasl_world import NODE, options
from waiting import wait_until

AUDITED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:admin;User:ANONYMOUS",
    "penstock.audit.topic": "audit",
}


class Reader:
    def __init__(self, bootstrap: str, settings: dict[str, str]) -> None:
        more = {"bootstrap.servers": bootstrap, "group.id": "auditors", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, **more})
        self._consumer.subscribe(["audit"])
        self.events: list[dict[str, Any]] = []

    def find(self, **wanted: object) -> dict[str, Any] | None:
        """The event with these fields, if it can be read by now."""
        for message in self._consumer.consume(100, 0.2):
            if message.error() is None:
                value, key = message.value(), message.key()
                assert value is not None and key is not None
                self.events.append(json.loads(value))
                assert self.events[-1]["principal"] == key.decode()
        return next((each for each in self.events if wanted.items() <= each.items()), None)

    def close(self) -> None:
        self._consumer.close()


def test_events_of_all_nodes_are_records(tmp_path: Path) -> None:
    with start_cluster(
        tmp_path, brokers=2, controllers=1, properties={**NODE, **AUDITED}, client_options=options()
    ) as cluster:
        cluster.create_topic("audit", partitions=1, replicas=1)
        with cluster.admin() as admin:
            admin.users.set_password("eve", "eves password")
        (other,) = [each for each in cluster.brokers if each is not cluster.leader_of("audit", 0)]
        eve = options("SCRAM-SHA-512", "eve", "eves password")
        with Admin(other.bootstrap, options=eve) as stranger:
            with pytest.raises(KafkaError) as refused:
                stranger.topics.create("mine", partitions=1)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        reader = Reader(cluster.bootstrap, options())
        try:
            changed = wait_until(lambda: reader.find(event="changed", request="AlterUserScramCredentials"))
            assert changed["principal"] == "User:admin"
            assert changed["node"] == cluster.controllers[0].node_id
            refusal = wait_until(lambda: reader.find(event="refused", principal="User:eve", resource="mine"))
            assert refusal["operation"] == "CREATE"
            assert "eves password" not in json.dumps(reader.events)
        finally:
            reader.close()


def test_events_wait_for_the_topic_and_are_dropped_beyond_the_limit(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    properties = {**AUDITED, "penstock.audit.max.queued.events": "2", "penstock.metrics.listener": metrics}
    with start_node(tmp_path / "node", properties=properties) as node, Admin(node.bootstrap) as admin:
        for name in ("a", "b", "c", "d", "audit"):
            admin.topics.create(name, partitions=1)
        reader = Reader(node.bootstrap, {})
        try:
            wait_until(lambda: reader.find(resources=["b"]))
            assert [each["resources"] for each in reader.events] == [["a"], ["b"]]
        finally:
            reader.close()
        with urllib.request.urlopen(f"http://{metrics}/metrics") as page:
            assert "penstock_audit_events_dropped_total 3" in page.read().decode()
