"""Nodes of Apache Kafka and of Penstock in one cluster, as processes, and the way from one kind to the other and back.

`Migration` is three nodes of each kind: 1 to 3 are Kafka's, 11 to 13 Penstock's, all in both roles. `there` and `back`
are the steps of `penstock migrate`, one by one.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from apache_kafka import KafkaNode
from migration_world import Command, Load, log_bytes, migrate, wait_in_sync
from penstock.client.wire.admin import Admin
from penstock.local.cluster import properties_of
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.migrate.properties import FILL_IN
from penstock.model.ids import uuid_text
from penstock.tls.files import create_authority, issue

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
KAFKA, PENSTOCK = (1, 2, 3), (11, 12, 13)
# Enough for a source to be killed while it is copied.
THROTTLE = 500_000
SAFE = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.cleaner.backoff.ms": "2000",
    # Kafka acknowledges DeleteRecords before this, and nodes that die meanwhile have the records again.
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}
PASSWORD = "a-password"
READY_S = 120.0
JAAS = "listener.name.clients.plain.sasl.jaas.config"


def features_of(release: str) -> dict[str, int]:
    """What Penstock serves of what the release would finalize: streams groups are from Kafka 4.2 on."""
    if release < "4.2" or "streams.version" in SUPPORTED_FEATURES:
        return {}
    return {"streams.version": 0}


def penstock_node(directory: Path, node_id: int, port: int, options: Mapping[str, str] | None = None) -> LocalNode:
    """A node whose server.properties `penstock migrate join` has written."""
    written = properties_of(str(directory))
    return LocalNode(node_id, str(directory), host="127.0.0.1", port=port, properties=written, client_options=options)


class Migration:
    """Nodes 1 to 3 are Kafka's, 11 to 13 Penstock's."""

    def __init__(
        self,
        directory: Path,
        release: str,
        *,
        secure: bool,
        kafka: Sequence[int] = KAFKA,
        properties: Mapping[str, str] | None = None,
        level: str | None = None,
    ) -> None:
        """`kafka`: the nodes of Kafka; `properties` are given to them, and `join` takes them over. `level`: the release
        whose features the cluster has, if it is not that of the software."""
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
                properties={**SAFE, **self._quorum(), **self._settings(node_id), **(properties or {})},
                client_options=self.client_options,
            )
            for node_id in kafka
        }
        self.penstock: dict[int, LocalNode] = {}
        self.release = release
        self._level = level

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
            levels = ["--release-version", self._level] if self._level else []
            features = {} if self._level else features_of(self.release)
            node.format(CLUSTER_ID, "--initial-controllers", controllers, *levels, features=features)
            node.start()
        for node in self.kafka.values():
            node.wait_ready()

    def join(self, node_id: int, *, votes: bool = True) -> None:
        """A new node of Penstock; in both roles, or as a broker only."""
        directory = self.directory / f"penstock-{node_id}"
        directory.mkdir()
        client_port, controller_port, node_port = self.ports[node_id]
        listeners = ["--listener", f"PLAINTEXT:{client_port}"]
        if self.secure:
            listeners = ["--listener", f"CLIENTS:{client_port}", "--listener", f"NODES:{node_port}"]
        path = directory / "server.properties"
        self.migrate(
            *("join", "--node-id", str(node_id), "--host", "127.0.0.1"),
            *(("--controller-port", str(controller_port)) if votes else ()),
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
        node.wait_ready(READY_S)

    def kill(self, node_id: int) -> None:
        """It is killed, starts again, and catches up."""
        self.kill_process(node_id)
        self.restart(node_id)
        self.wait_in_sync()

    def kill_process(self, node_id: int) -> None:
        self._node(node_id).kill()

    def restart(self, node_id: int) -> None:
        node = self._node(node_id)
        node.start()
        node.wait_ready() if isinstance(node, KafkaNode) else node.wait_ready(READY_S)

    def _node(self, node_id: int) -> KafkaNode | LocalNode:
        return self.kafka.get(node_id) or self.penstock[node_id]

    def migrate_and_kill(self, *arguments: str, killed: Sequence[int]) -> None:
        """Run a command, and kill a node of each kind while it does its work: it waits for them, and goes on.

        The second dies while the first is away, and is back before it: so the command cannot have ended by then.
        """
        log = self.directory / "migrate.log"
        extra = ["--command-config", self.options_file] if self.secure else []
        with Command(*arguments, *extra, bootstrap=self.bootstrap, log=log) as command:
            command.wait_for()  # until it says that it is at work
            for node_id in killed:
                self.kill_process(node_id)
                assert command.running, command.said()
            for node_id in reversed(killed):
                self.restart(node_id)
            if killed:
                wait_in_sync(self.bootstrap, options=self.client_options, copies=False)
            assert command.wait() == 0, command.said()

    def admin(self) -> Admin:
        return Admin(self.bootstrap, timeout=30.0, options=self.client_options)

    def data_directory(self, node_id: int) -> Path:
        if node_id in self.kafka:
            return self.kafka[node_id].data_directory
        return Path(self.penstock[node_id].data_path)

    def compare_logs(self, topic: str, settings: Mapping[str, str], killed: Sequence[int]) -> None:
        """A topic with replicas on both kinds, led by either, is written to while nodes are killed: its files are
        equal."""
        assignment = [[1, 11, 2], [12, 2, 13], [3, 13, 11], [11, 1, 12]]
        with self.admin() as admin:
            admin.topics.create(topic, assignment=assignment)
        with Load(self.bootstrap, topic, len(assignment), rate=40.0, settings=settings) as load:
            load.wait_for_more()
            for node_id in killed:
                self.kill(node_id)
            load.wait_for_more()
        load.check(self.bootstrap, options=self.client_options)
        self.wait_in_sync()
        for partition, replicas in enumerate(assignment):
            first, *others = (log_bytes(self.data_directory(each), topic, partition) for each in replicas)
            assert first and all(each == first for each in others), f"{topic}-{partition} on {replicas}"
        with self.admin() as admin:
            admin.topics.delete(topic)

    # -- the way, step by step -----------------------------------------------------------------------------------------

    def there(self, *, kill: bool = True) -> Iterator[str]:
        """Each step's name, when it is done."""
        self.migrate("check")
        for node_id in PENSTOCK:
            self.join(node_id)
        yield "join"
        if kill:
            for node_id in (1, 11):
                self.kill(node_id)
            yield "joined, one of each killed"
        yield self._step("move", "--throttle", str(THROTTLE), killed=(12, 2) if kill else ())
        self.wait_in_sync({"orders": PENSTOCK, "__consumer_offsets": PENSTOCK, "__transaction_state": PENSTOCK})
        yield self._step("controllers", "--to", "11,12,13", killed=(13, 3) if kill else ())

    def leave_kafka(self, *, kill: bool = True) -> Iterator[str]:
        for node in self.kafka.values():
            node.stop()
        yield "Kafka stopped"
        self.migrate("retire", "1,2,3")
        yield "retire"
        if kill:
            self.kill(11)
            yield "Penstock alone, one killed"

    def return_kafka(self) -> Iterator[str]:
        for node in self.kafka.values():
            node.start()
        for node in self.kafka.values():
            node.wait_ready()
        yield "Kafka started"

    def back(self, *, kill: bool = True) -> Iterator[str]:
        yield self._step("back", "--to", "1,2,3", "--throttle", str(THROTTLE), killed=(3, 13) if kill else ())
        self.wait_in_sync({"orders": KAFKA, "__consumer_offsets": KAFKA, "__transaction_state": KAFKA})
        yield self._step("controllers", "--to", "1,2,3", killed=(11, 2) if kill else ()) + " back"
        for own in self.penstock.values():
            own.stop()
        yield "Penstock stopped"
        self.migrate("retire", "11,12,13")
        yield "retire of Penstock"
        if kill:
            self.kill(1)
            yield "Kafka alone again, one killed"

    def _step(self, *arguments: str, killed: Sequence[int]) -> str:
        self.migrate_and_kill(*arguments, killed=killed)
        return f"{arguments[0]}, one of each killed" if killed else arguments[0]

    def wait_in_sync(self, expected: Mapping[str, Sequence[int]] | None = None) -> None:
        wait_in_sync(self.bootstrap, expected, options=self.client_options)

    def stop(self) -> None:
        """At the end of a test. The last voters would wait in vain for a quorum to let them go."""
        for node in self.penstock.values():
            node.stop()
        for kafka in self.kafka.values():
            if kafka.running:
                kafka.kill()

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
            "delegation.token.secret.key": PASSWORD,
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
