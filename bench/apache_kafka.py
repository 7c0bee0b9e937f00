"""`--kafka`: Apache Kafka from Maven Central as the peer, one node or three, where Maven and Java are.

Maven resolves the class path once (into the directory for caches of the user) and keeps the jars in its own repository.
The nodes are combined (broker and controller), with Kafka's defaults but for the replication of its internal topics,
and for the minute that files of deleted topics stay: their pages are needed for the next sample.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bench.processes import ServerProcess, wait_until
from bench.subjects import PEER, Kafka
from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports

VERSION: Final = "4.3.1"  # Maven Central has no broker of 4.4.0, only its clients
CLIENTS_VERSION: Final = "4.4.0"
BROKER: Final = "kafka_2.13"
CLIENTS: Final = "kafka-clients"
RESOLVE = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
RESOLVE_S = 600.0
READY_S = 120.0
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_JAVA = ("-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as kafka-server-start does
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


class NoKafka(Exception):
    """Apache Kafka cannot be had here, and why."""


def class_path(version: str, artifact: str = BROKER) -> str:
    """The jars of a release, from the cache or by Maven."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NoKafka(f"{program} is not installed: --kafka needs Java 17 and Maven; --peer takes a running Kafka")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = os.path.join(caches, "penstock-bench", f"{artifact}-{version}")
    os.makedirs(directory, exist_ok=True)
    found = os.path.join(directory, "classpath")
    if not _is_complete(found):
        with open(os.path.join(directory, "pom.xml"), "w", encoding="utf-8") as pom:
            pom.write(_POM.format(artifact=artifact, version=version))
        command = ["mvn", "--quiet", "--batch-mode", RESOLVE, f"-Dmdep.outputFile={found}"]
        try:
            outcome = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=RESOLVE_S)
        except subprocess.TimeoutExpired:
            raise NoKafka(f"Maven did not resolve {artifact} {version} within {RESOLVE_S:g} s") from None
        if not _is_complete(found):
            errors = " ".join(line for line in outcome.stdout.splitlines() if "ERROR" in line)
            raise NoKafka(f"Maven cannot resolve {artifact} {version}: {errors[:500]}")
    with open(found, encoding="utf-8") as file:
        return file.read().strip()


def _is_complete(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return all(os.path.exists(jar) for jar in file.read().strip().split(":"))
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class KafkaNode:
    node_id: int
    host: str
    port: int
    pid: int
    data_directory: str


class KafkaCluster:
    """Running nodes of Apache Kafka's; `bench.replicated` uses them as it uses a cluster of ours."""

    def __init__(self, nodes: list[KafkaNode]) -> None:
        self.brokers = nodes

    @property
    def kafka(self) -> Kafka:
        """The first node, as the peer of a single broker."""
        node = self.brokers[0]
        return Kafka(PEER, node.host, node.port, node.pid, node.data_directory)

    def admin(self, timeout: float = 30.0) -> Admin:
        return Admin(self.kafka.bootstrap, timeout=timeout)

    def wait_for_isr(self, topic: str) -> None:
        def is_complete() -> bool:
            with self.admin() as admin:
                found = [each for each in admin.topics.list() if each.name == topic]
            return bool(found) and all(len(part.isr) == len(part.replicas) for part in found[0].partitions)

        self.wait_until(is_complete, f"all replicas of {topic} in sync")

    @staticmethod
    def wait_until(condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, READY_S)


@contextlib.contextmanager
def apache_kafka(
    directory: str, nodes: int = 1, version: str = VERSION, *, tls: tuple[int, str] | None = None
) -> Iterator[KafkaCluster]:
    """`tls`: the port of an SSL listener, and the file with its key and certificate; for a single node."""
    jars = class_path(version)
    ports = free_ports(2 * nodes)
    brokers, controllers = ports[:nodes], ports[nodes:]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
    with contextlib.ExitStack() as stack:
        running = []
        for number, (port, controller_port) in enumerate(zip(brokers, controllers, strict=True), 1):
            home = os.path.join(directory, f"kafka-{number}")
            os.makedirs(home)
            data = os.path.join(home, "data")
            settings = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": data,
                "log.segment.delete.delay.ms": "0",  # what a topic says of this does not apply when it is deleted
                "offsets.topic.replication.factor": str(nodes),
                "transaction.state.log.replication.factor": str(nodes),
                "transaction.state.log.min.isr": str((nodes + 1) // 2),
                "share.coordinator.state.topic.replication.factor": str(nodes),
                "share.coordinator.state.topic.min.isr": str((nodes + 1) // 2),
            }
            if tls is not None:
                secure, store = tls
                settings["listeners"] += f",SSL://127.0.0.1:{secure}"
                settings["advertised.listeners"] = f"PLAINTEXT://localhost:{port},SSL://localhost:{secure}"
                settings["listener.security.protocol.map"] += ",SSL:SSL"
                settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": store}
            properties = os.path.join(home, "server.properties")
            with open(properties, "w", encoding="utf-8") as file:
                file.writelines(f"{name}={value}\n" for name, value in settings.items())
            _format(jars, properties)
            server = ServerProcess(
                ["java", *_JAVA, "-cp", jars, "kafka.Kafka", properties], port, os.path.join(home, "output")
            )
            stack.callback(server.stop)
            running.append((server, KafkaNode(number, "127.0.0.1", port, server.pid, data)))
        for server, node in running:
            server.wait_for(lambda node=node: _answers(node, nodes))  # type: ignore[misc]
        yield KafkaCluster([node for _, node in running])


def _format(jars: str, properties: str) -> None:
    command = ["java", "-cp", jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_S)
    if outcome.returncode != 0:
        raise NoKafka(f"Apache Kafka cannot format its directory: {outcome.stderr[-500:]}")


def _answers(node: KafkaNode, nodes: int) -> bool:
    """Whether it serves clients, and knows as many brokers as there are."""
    try:
        with Admin(f"{node.host}:{node.port}", timeout=5.0) as admin:
            return len(admin.cluster.describe().brokers) == nodes
    except ClientError:
        time.sleep(0.2)
        return False
