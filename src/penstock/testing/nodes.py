"""Real brokers for tests: a separate process, on a free port, in a directory of the test.

    with start_node(tmp_path / "node") as node:
        Producer({"bootstrap.servers": node.bootstrap})
        node.kill()       # kill -9
        node.restart()    # same port, same data; ready on return

Leaving the block, or the death of the test run, ends the process.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.local.node import LocalNode
from penstock.local.ports import free_ports, is_free
from penstock.local.process import NodeFailed

_PORT_ATTEMPTS = 5


class RunningNode:
    def __init__(self, node: LocalNode, ready_timeout: float) -> None:
        self._node = node
        self._ready_timeout = ready_timeout

    @property
    def bootstrap(self) -> str:
        return self._node.address

    @property
    def host(self) -> str:
        return self._node.host

    @property
    def port(self) -> int:
        return self._node.port

    @property
    def node_id(self) -> int:
        return self._node.node_id

    @property
    def directory(self) -> str:
        return self._node.directory

    @property
    def data_directory(self) -> str:
        """The log directory: topic-partition directories, checkpoints, meta.properties."""
        return self._node.data_path

    @property
    def properties_path(self) -> str:
        return self._node.properties_path

    @property
    def running(self) -> bool:
        return self._node.running

    @property
    def pid(self) -> int:
        assert self._node.process is not None, "the node is not running"
        return self._node.process.pid

    def partition_directory(self, topic: str, partition: int = 0) -> str:
        return os.path.join(self.data_directory, f"{topic}-{partition}")

    def kill(self) -> None:
        """Send SIGKILL, like a crash of the process; the machine (and its page cache) stays up."""
        self._node.kill()

    def stop(self) -> int:
        """Stop cleanly; return the exit status."""
        return self._node.stop()

    def pause(self) -> None:
        """Send SIGSTOP: the process keeps its connections and does not answer."""
        self._node.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._node.signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Empty the disk, as after its replacement; the node must not be running."""
        assert not self.running
        shutil.rmtree(self.data_directory)

    def start(self, *, properties: Mapping[str, str] | None = None) -> None:
        """Start again after `kill` or `stop`, optionally with changed properties; ready on return."""
        self._node.properties.update(properties or {})
        self.begin_start()
        self.wait_ready()

    def begin_start(self) -> None:
        """Start without waiting: a node of a cluster may need others to become ready."""
        self._node.start()

    def wait_ready(self) -> None:
        self._node.wait_ready(self._ready_timeout)

    def restart(self, *, properties: Mapping[str, str] | None = None) -> None:
        self.stop()
        self.start(properties=properties)

    def log_text(self) -> str:
        return self._node.log_text()


@contextmanager
def start_node(
    directory: str | os.PathLike[str],
    *,
    properties: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    node_id: int = 1,
    ready_timeout: float = 30.0,
    client_options: Mapping[str, str] | None = None,
) -> Iterator[RunningNode]:
    """Start a node of both roles and wait until it is ready; `client_options` are the security settings of clients.

    Without `port` it gets a free one, and another one if that is taken meanwhile.
    """
    attempts = _PORT_ATTEMPTS if port is None else 1
    for attempt in range(1, attempts + 1):
        chosen = free_ports(1, host)[0] if port is None else port
        node = LocalNode(
            node_id,
            os.fspath(directory),
            host=host,
            port=chosen,
            properties=properties,
            client_options=client_options,
        )
        try:
            node.start()
            node.wait_ready(ready_timeout)
            break
        except NodeFailed:
            node.kill()
            if attempt == attempts or is_free(chosen, host):
                raise
    try:
        yield RunningNode(node, ready_timeout)
    finally:
        node.stop(grace_seconds=10.0)
