"""The whole migration, long: three nodes of Apache Kafka in both roles become three of Penstock, and go back, under
load.

At every step a node of each kind is killed once. What is printed at the end is the longest time without an
acknowledgement, by step.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from apache_kafka import KafkaNode
from clients.test_migration import CLUSTER_ID, features_of, penstock_node
from migration_world import Load, migrate, wait_in_sync
from penstock.client.wire.admin import Acl, Admin
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.migrate.properties import FILL_IN
from penstock.model.ids import uuid_text
from penstock.tls.files import create_authority, issue

RELEASES = ["4.1.2", "4.2.1", "4.3.1"]
SAFE = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}
PASSWORD = "a-password"
JAAS = "listener.name.clients.plain.sasl.jaas.config"


class World:
    """Nodes 1 to 3 are Kafka's, 11 to 13 Penstock's."""

    def __init__(self, directory: Path, release: str, *, secure: bool) -> None:
        self.directory = directory
        self.secure = secure
        ports = free_ports(18)
        self.ports = {node_id: ports[3 * index : 3 * index + 3] for index, node_id in enumerate((1, 2, 3, 11, 12, 13))}
        self.client_options: dict[str, str] = {}
        if secure:
            self._certify()
        self.kafka = {
            node_id: KafkaNode(
                node_id,
                directory / f"kafka-{node_id}",
                version=release,
                port=self.ports[node_id][0],
                controller_port=self.ports[node_id][1],
                properties={**SAFE, **self._quorum(), **self._settings(node_id)},
                client_options=self.client_options,
            )
            for node_id in (1, 2, 3)
        }
        self.penstock: dict[int, LocalNode] = {}
        self.release = release

    def _quorum(self) -> dict[str, str]:
        addresses = ",".join(f"127.0.0.1:{ports[1]}" for ports in self.ports.values())
        return {"controller.quorum.bootstrap.servers": addresses}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{ports[0]}" for ports in self.ports.values())

    @property
    def options_file(self) -> str:
        path = self.directory / "client.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.client_options.items()))
        return str(path)

    def migrate(self, *arguments: str) -> str:
        extra = ["--command-config", self.options_file] if self.secure else []
        return migrate(*arguments, *extra, bootstrap=self.bootstrap)

    def start_kafka(self) -> None:
        directories = {node_id: uuid_text(os.urandom(16)) for node_id in self.kafka}
        controllers = ",".join(
            f"{node_id}@127.0.0.1:{self.ports[node_id][1]}:{directories[node_id]}" for node_id in self.kafka
        )
        for node in self.kafka.values():
            node.format(CLUSTER_ID, "--initial-controllers", controllers, features=features_of(self.release))
            node.start()
        for node in self.kafka.values():
            node.wait_ready()

    def join(self, node_id: int) -> None:
        directory = self.directory / f"penstock-{node_id}"
        directory.mkdir()
        client_port, controller_port, node_port = self.ports[node_id]
        listeners = ["--listener", f"PLAINTEXT:{client_port}"]
        if self.secure:
            listeners = ["--listener", f"CLIENTS:{client_port}", "--listener", f"NODES:{node_port}"]
        path = directory / "server.properties"
        self.migrate(
            *("join", "--node-id", str(node_id), "--host", "127.0.0.1", "--controller-port", str(controller_port)),
            *("--directory", str(directory / "data"), "--output", str(path), *listeners),
        )
        if self.secure:  # what an operator fills in
            own = self._settings(node_id)
            lines = [line.partition("=") for line in path.read_text().splitlines()]
            filled = {name: own.get(name, value) if value == FILL_IN else value for name, _, value in lines}
            filled["ssl.keystore.location"] = own["ssl.keystore.location"]
            path.write_text("".join(f"{name}={value}\n" for name, value in filled.items()))
        node = penstock_node(directory, node_id, client_port, self.client_options)
        self.penstock[node_id] = node
        node.start()
        node.wait_ready(90)

    def kill_one_of_each(self, kafka: int, penstock: int) -> None:
        for node in (self.kafka[kafka], self.penstock[penstock]):
            node.kill()
            node.start()
            if isinstance(node, LocalNode):
                node.wait_ready(90)
            else:
                node.wait_ready()
            self.wait_in_sync()

    def wait_in_sync(self, expected: Mapping[str, list[int]] | None = None) -> None:
        wait_in_sync(self.bootstrap, expected, options=self.client_options)

    def stop(self) -> None:
        for node in self.penstock.values():
            node.stop()
        for kafka in self.kafka.values():
            kafka.stop()

    # -- TLS, SASL and ACLs --------------------------------------------------------------------------------------------

    def _certify(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        authority = create_authority(str(self.directory / "tls"), "migration", now)
        for node_id in self.ports:
            issue(authority, str(self.directory / "tls" / f"{node_id}.pem"), f"node-{node_id}", ["127.0.0.1"], now)
        self.client_options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="{PASSWORD}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "tls" / "ca.pem"),
        }

    def _settings(self, node_id: int) -> dict[str, str]:
        if not self.secure:
            return {}
        client_port, controller_port, node_port = self.ports[node_id]
        users = f'user_admin="{PASSWORD}" user_app="{PASSWORD}"'
        return {
            "listeners": f"CLIENTS://127.0.0.1:{client_port},NODES://127.0.0.1:{node_port},"
            f"CONTROLLER://127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "NODES",
            "sasl.enabled.mechanisms": "PLAIN",
            JAAS: f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "tls" / f"{node_id}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "tls" / "ca.pem"),
            "ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;" + ";".join(f"User:CN=node-{each}" for each in self.ports),
        }


def client_settings(options: Mapping[str, str], user: str) -> dict[str, str]:
    """The same for librdkafka."""
    if not options:
        return {}
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "ssl.ca.location": options["ssl.truststore.location"],
    }


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("release", "secure"), [*((each, False) for each in RELEASES), (RELEASES[-1], True)])
def test_three_nodes_become_penstock_and_kafka_again(tmp_path: Path, release: str, secure: bool) -> None:
    world = World(tmp_path, release, secure=secure)
    pauses: dict[str, float] = {}
    try:
        world.start_kafka()
        with Admin(world.bootstrap, timeout=30.0, options=world.client_options) as admin:
            admin.topics.create("orders", partitions=3, replication_factor=3)
            if secure:
                grants = [("TOPIC", "orders", "ALL"), ("GROUP", "orders-readers", "ALL")]
                admin.acls.create(
                    Acl(principal="User:app", operation=operation, resource_type=kind, resource=name)
                    for kind, name, operation in grants
                )
        settings = client_settings(world.client_options, "app")
        with Load(world.bootstrap, "orders", 3, rate=100.0, settings=settings) as load:

            def step(name: str) -> None:
                load.wait_for_more()
                pauses[name] = load.step()

            step("kafka alone")
            world.migrate("check")
            for node_id in (11, 12, 13):
                world.join(node_id)
            step("join")
            world.kill_one_of_each(1, 11)
            step("join, one of each killed")
            world.migrate("move")
            world.wait_in_sync({"orders": [11, 12, 13], "__consumer_offsets": [11, 12, 13]})
            step("move")
            world.migrate("controllers", "--to", "11,12,13")
            step("controllers")
            world.kill_one_of_each(2, 12)
            step("controllers, one of each killed")
            for node in world.kafka.values():
                node.stop()
            world.migrate("retire", "1,2,3")
            step("retire")

            for node in world.kafka.values():
                node.start()
            for node in world.kafka.values():
                node.wait_ready()
            world.migrate("back", "--to", "1,2,3")
            world.wait_in_sync({"orders": [1, 2, 3], "__consumer_offsets": [1, 2, 3]})
            step("back")
            world.kill_one_of_each(3, 13)
            step("back, one of each killed")
            world.migrate("controllers", "--to", "1,2,3")
            step("controllers back")
            for own in world.penstock.values():
                own.stop()
            world.migrate("retire", "11,12,13")
            step("retire of penstock")
        load.check(world.bootstrap, options=world.client_options)
    finally:
        world.stop()
    for name, pause in pauses.items():
        print(f"{release} {'SASL_SSL' if secure else 'plain':8} {name:32} {pause:6.2f} s")
