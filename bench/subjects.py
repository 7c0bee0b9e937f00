"""What is measured: a broker of ours, a Kafka that runs already, and the floors.

All of them are processes with a port. The Kafkas also have topics; a load makes the ones it needs and deletes them when
it is done, and waits until their files are gone, so that one sample does not pay for the removal of another's data.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.floor import FloorSettings
from bench.processes import ServerProcess, accepts, listening_pid, wait_until
from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition

PENSTOCK = "penstock"
FLOOR = "floor"
EPOLL_FLOOR = "epoll"
SENDFILE_FLOOR = "sendfile"
PEER = "peer"

FLOOR_MODULES = {FLOOR: "bench.floor", EPOLL_FLOOR: "bench.floor_epoll", SENDFILE_FLOOR: "bench.floor_sendfile"}
# Deleted topics go at once, not after Kafka's minute: their pages are needed for the next sample.
TOPIC_CONFIGS = {"file.delete.delay.ms": "0"}
READY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Kafka:
    """A Kafka under measurement; `data_directory` and `pid` as far as they are known."""

    name: str
    host: str
    port: int
    pid: int
    data_directory: str | None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @contextlib.contextmanager
    def topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> Iterator[str]:
        with Admin(self.bootstrap) as admin:
            admin.topics.create(
                name, partitions=partitions, replication_factor=1, configs={**TOPIC_CONFIGS, **(configs or {})}
            )
        try:
            wait_until(lambda: self.leads(name), f"leaders of {name}")
            with Admin(self.bootstrap) as admin:
                # Metadata may name leaders that do not know of it yet; this is repeated until they do.
                admin.topics.offsets([TopicPartition(name, index) for index in range(partitions)])
            yield name
        finally:
            with Admin(self.bootstrap) as admin:
                admin.topics.delete(name)
            if self.data_directory is not None:
                wait_until(lambda: not self._directories(name), f"removal of {name}")

    def leads(self, topic: str) -> bool:
        """Whether all partitions of a topic have a leader."""
        with Admin(self.bootstrap) as admin:
            descriptions = [description for description in admin.topics.list() if description.name == topic]
        return bool(descriptions) and all(part.leader is not None for part in descriptions[0].partitions)

    def _directories(self, topic: str) -> list[str]:
        assert self.data_directory is not None
        return [entry for entry in os.listdir(self.data_directory) if entry.startswith((topic + "-", topic + "."))]


def keep_bytecode(directory: str) -> None:
    """Let the processes we start find compiled modules, as those of an installed package are, whatever our own
    environment says about writing them."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = directory


class PenstockNode:
    """One node of ours, started as a user starts it: `penstock server FILE`."""

    def __init__(self, directory: str, properties: Mapping[str, str] | None = None) -> None:
        self._node = LocalNode(1, directory, host="127.0.0.1", port=free_ports(1)[0], properties=properties)

    def start(self) -> float:
        """Start it; the seconds until the first reply, an ApiVersions response."""
        started = time.perf_counter()
        self._node.start()
        while True:
            try:
                Connection(self._node.host, self._node.port, timeout=READY_TIMEOUT_S).close()
                seconds = time.perf_counter() - started
                break
            except ClientError:
                if not self._node.running:
                    raise RuntimeError(f"the broker did not start:\n{self._node.log_text()[-4000:]}") from None
                if time.perf_counter() - started > READY_TIMEOUT_S:
                    raise
                time.sleep(0.002)
        self._node.wait_ready(READY_TIMEOUT_S)
        return seconds

    @property
    def kafka(self) -> Kafka:
        assert self._node.process is not None
        return Kafka(PENSTOCK, self._node.host, self._node.port, self._node.process.pid, self._node.data_path)

    def stop(self) -> None:
        self._node.stop()

    def kill(self) -> None:
        self._node.kill()

    def log_text(self) -> str:
        return self._node.log_text()


@contextlib.contextmanager
def penstock(directory: str, properties: Mapping[str, str] | None = None) -> Iterator[Kafka]:
    node = PenstockNode(directory, properties)
    try:
        node.start()
        yield node.kafka
    finally:
        node.stop()


def peer(address: str) -> Kafka:
    host, _, port = address.rpartition(":")
    pid = listening_pid(int(port)) if host in ("127.0.0.1", "localhost", "::1") else None
    return Kafka(PEER, host, int(port), pid or 0, None)


@contextlib.contextmanager
def floors(directory: str, settings: Mapping[str, object], names: Sequence[str]) -> Iterator[dict[str, ServerProcess]]:
    """The floors of a load, by name, for as long as the block lasts."""
    running: dict[str, ServerProcess] = {}
    try:
        for name in names:
            (port,) = free_ports(1)
            arguments = FloorSettings(port=port, directory=directory, **settings)  # type: ignore[arg-type]
            server = ServerProcess(
                [sys.executable, "-m", FLOOR_MODULES[name], arguments.to_json()],
                port,
                os.path.join(directory, f"{name}-{port}.out"),
            )
            running[name] = server
            server.wait_for(lambda port=port: accepts(port))  # type: ignore[misc]
        yield running
    finally:
        for server in running.values():
            server.stop()
