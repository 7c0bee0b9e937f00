"""Nodes of Apache Kafka as processes, with small heaps: the reference for answers, and clusters of both kinds.

    node = KafkaNode(1, tmp_path / "kafka-1", version="4.3.1", port=p, controller_port=c)
    node.format(CLUSTER_ID, "--standalone", features={"streams.version": 0})
    node.start()
    node.wait_ready()

    with apache_kafka(tmp_path) as bootstrap: ...

The jars come from Maven (`spark/connector/pom.xml`), which has the broker up to 4.3.1, and of 4.4.0 the clients and
some libraries only. A test is skipped where they cannot be had.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.client.errors import ClientError
from penstock.client.wire.connection import Connection
from penstock.client.wire.login import login_from, tls_from
from penstock.local.ports import free_ports
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spark.connector_jars import broker_jars

READY_S = 180.0
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"

# Enough for a cluster of one to four nodes.
SMALL: Mapping[str, str] = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


class KafkaNode:
    """A node of both roles, or of one of them."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        *,
        version: str | None = None,
        port: int,
        controller_port: int,
        roles: str = "broker,controller",
        properties: Mapping[str, str] | None = None,
        client_options: Mapping[str, str] | None = None,
        heap_mb: int = 256,
    ) -> None:
        """`version`: of another release than the one that pom.xml names."""
        self.node_id = node_id
        self.directory = directory
        self.version = version
        self.port = port
        self.controller_port = controller_port
        self.roles = roles
        self._client_options = dict(client_options or {})
        self._heap_mb = heap_mb
        self.process: subprocess.Popen[bytes] | None = None
        listeners = []
        self.properties = {
            "process.roles": roles,
            "node.id": str(node_id),
            "log.dirs": str(directory / "data"),
            **SMALL,
        }
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://127.0.0.1:{port}")
        if "controller" in roles:
            listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
        self.properties |= {
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            **(properties or {}),
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def controllers(self) -> str:
        return f"127.0.0.1:{self.controller_port}"

    @property
    def data_directory(self) -> Path:
        return self.directory / "data"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_text(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")

    def format(self, cluster_id: str, *arguments: str, features: Mapping[str, int] | None = None) -> None:
        levels = [f"--feature={name}={level}" for name, level in (features or {}).items()]
        self.tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", self._write(), *arguments, *levels)

    def tool(self, main: str, *arguments: str) -> str:
        """Run one of Kafka's tools; returns what it prints."""
        outcome = subprocess.run([*self._java(), main, *arguments], capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return outcome.stdout

    def start(self) -> None:
        assert not self.running
        path = self._write()
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", path], stdout=log, stderr=log, cwd=self.directory
            )

    def wait_ready(self) -> None:
        """A broker lists itself in Metadata; a controller accepts connections."""
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            assert self.running and time.monotonic() < deadline, self.log_text()[-8000:]
            time.sleep(0.1)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def _is_ready(self) -> bool:
        options = self._client_options
        port = self.port if "broker" in self.roles else self.controller_port
        try:
            with Connection(
                "127.0.0.1", port, timeout=2.0, login=login_from(options), tls=tls_from(options)
            ) as connection:
                if "broker" not in self.roles:
                    return True
                metadata = connection.request(MetadataRequest(topics=[]), MetadataResponse)
        except ClientError:
            return False
        return any(broker.node_id == self.node_id for broker in metadata.brokers)

    def _write(self) -> str:
        os.makedirs(self.directory, exist_ok=True)
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        return str(path)

    def _java(self) -> list[str]:
        logging = self.directory / "log4j2.properties"
        if not logging.exists():
            os.makedirs(self.directory, exist_ok=True)
            logging.write_text(LOGGING)
        class_path = ":".join(broker_jars(self.version))
        return [*JAVA, f"-Xmx{self._heap_mb}m", f"-Dlog4j2.configurationFile={logging}", "-cp", class_path]


@contextlib.contextmanager
def apache_kafka(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    *,
    ports: tuple[int, int] | None = None,
    client_options: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """One node of both roles; its address. `ports`: of the listener for clients, PLAINTEXT, and of that for
    controllers, CONTROLLER."""
    port, controller_port = ports or free_ports(2)
    node = KafkaNode(
        1,
        directory,
        port=port,
        controller_port=controller_port,
        properties=properties,
        client_options=client_options,
        heap_mb=768,
    )
    node.format(CLUSTER_ID, "--standalone")
    node.start()
    try:
        node.wait_ready()
        yield node.bootstrap
    finally:
        node.stop()


LOGGING = """
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
"""
