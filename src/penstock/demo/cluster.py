"""The demo's cluster: three brokers and three controllers, as `penstock up --brokers 3` has them, for a while.

Topics have three replicas, of which two must be in sync (`min.insync.replicas`), so one broker may be away and
`acks=all` still means two copies. That is why only one can be killed at a time here.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable

from penstock.client.wire.admin import Admin
from penstock.demo.janitor import Janitor
from penstock.demo.streams import PARTITIONS, TOPICS
from penstock.local.cluster import LocalCluster, plan_cluster
from penstock.local.node import LocalNode, NodeFailed
from penstock.local.ports import free_ports

BROKERS = 3
START_SECONDS = 180.0
_ATTEMPTS = 3
_POLL_SECONDS = 0.02
_HOST = "127.0.0.1"
_PROPERTIES = {
    "transaction.two.phase.commit.enable": "true",  # exactly-once sinks
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "leader.imbalance.check.interval.seconds": "5",  # a broker that is back leads again while one looks
}
# A demo that is forgotten in a terminal does not fill the disk.
_TOPIC = {"segment.bytes": str(8 * 1024 * 1024), "retention.bytes": str(32 * 1024 * 1024)}


class DemoCluster:
    def __init__(self, directory: str, janitor: Janitor) -> None:
        self._directory = directory
        self._janitor = janitor
        self._nodes: LocalCluster | None = None
        self._moving = threading.Lock()

    @property
    def brokers(self) -> tuple[LocalNode, ...]:
        return self._nodes.brokers if self._nodes is not None else ()

    @property
    def bootstrap(self) -> str:
        assert self._nodes is not None
        return self._nodes.bootstrap

    @property
    def down(self) -> LocalNode | None:
        return next((broker for broker in self.brokers if not broker.running), None)

    def start(self, cancelled: Callable[[], bool]) -> None:
        """Returns when each broker knows all, and the topics are there. Another program may take a port between our
        choosing it and a node's binding it; then all begins again with other ports."""
        for attempt in range(_ATTEMPTS):
            self._nodes = plan_cluster(
                self._directory, host=_HOST, ports=free_ports(BROKERS, _HOST), properties=_PROPERTIES, metrics=True
            )
            try:
                self._start(cancelled)
                return
            except NodeFailed:
                self.stop()
                if attempt == _ATTEMPTS - 1:
                    raise
                for name in os.listdir(self._directory):
                    shutil.rmtree(os.path.join(self._directory, name))

    def kill(self, broker_id: int) -> LocalNode:
        """kill -9."""
        with self._moving:
            broker = self._broker(broker_id)
            self._kill(broker)
            return broker

    def bring_back(self, cancelled: Callable[[], bool]) -> LocalNode | None:
        with self._moving:
            broker = self.down
            if broker is not None and not cancelled():
                self._start_node(broker)
                broker.wait_ready(START_SECONDS, cancelled=cancelled)
            return broker

    def stop(self) -> None:
        """At once: what they have written is about to be deleted anyway."""
        for node in self._nodes.nodes if self._nodes is not None else ():
            self._kill(node)

    def _start(self, cancelled: Callable[[], bool]) -> None:
        assert self._nodes is not None
        for node in self._nodes.nodes:
            if cancelled():
                return
            self._start_node(node)
        for node in self._nodes.nodes:
            node.wait_ready(START_SECONDS, cancelled=cancelled)
        everybody = {broker.node_id for broker in self.brokers}
        while not cancelled() and not all(broker.known_brokers() >= everybody for broker in self.brokers):
            time.sleep(_POLL_SECONDS)
        if not cancelled():
            with Admin(self.bootstrap) as admin:
                for topic in TOPICS:
                    admin.topics.create(topic, partitions=PARTITIONS, replication_factor=BROKERS, configs=_TOPIC)

    def _start_node(self, node: LocalNode) -> None:
        node.start()
        assert node.process is not None
        self._janitor.started(node.process.pid)

    def _kill(self, node: LocalNode) -> None:
        if node.process is not None:
            self._janitor.ended(node.process.pid)
            node.kill()

    def _broker(self, broker_id: int) -> LocalNode:
        return next(broker for broker in self.brokers if broker.node_id == broker_id)
