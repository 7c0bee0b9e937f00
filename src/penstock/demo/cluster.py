"""The demo's cluster: three brokers and three controllers, as `penstock up --brokers 3` starts them.

Topics have three replicas, of which two must be in sync (`min.insync.replicas`), so one broker may be down and
`acks=all` still means two copies. That is why only one can be killed at a time here.

`ClusterObserver` asks the brokers for leaders, in-sync replicas and the lag of groups.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.demo.cleanup import Cleanup
from penstock.demo.workload import GROUPS, PARTITIONS, TOPICS
from penstock.local.cluster import LocalCluster, plan_cluster
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.local.process import NodeFailed
from penstock.model.errors import KafkaError

BROKERS = 3
START_S = 180.0
_ATTEMPTS = 3
_POLL_S = 0.02
_OBSERVE_S = 0.5
_REQUEST_S = 5.0
_HOST = "127.0.0.1"
_PROPERTIES = {
    "transaction.two.phase.commit.enable": "true",  # exactly-once sinks
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "leader.imbalance.check.interval.seconds": "5",  # a broker that is back soon leads again
}
# A demo that is left running in a terminal must not fill the disk.
_TOPIC = {"segment.bytes": str(8 * 1024 * 1024), "retention.bytes": str(32 * 1024 * 1024)}


def client_settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """Settings for librdkafka, by its names with underscores for dots. Its log is dropped: it reports every dead
    broker."""
    silent = logging.getLogger("penstock.librdkafka")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "penstock-demo",
        "logger": silent,
        "reconnect.backoff.max.ms": 1000,  # a broker that comes back is used soon
        **{name.replace("_", "."): value for name, value in more.items()},
    }


class DemoCluster:
    def __init__(self, directory: str, cleanup: Cleanup) -> None:
        self._directory = directory
        self._cleanup = cleanup
        self._nodes: LocalCluster | None = None
        self._changing = threading.Lock()

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
        """Returns when each broker knows all others, and the topics exist. Another program may take a port between our
        choice and a node's bind; then the start is repeated with other ports."""
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
        with self._changing:
            broker = self._broker(broker_id)
            self._kill(broker)
            return broker

    def restart(self, cancelled: Callable[[], bool]) -> LocalNode | None:
        with self._changing:
            broker = self.down
            if broker is not None and not cancelled():
                self._start_node(broker)
                broker.wait_ready(START_S, cancelled=cancelled)
            return broker

    def stop(self) -> None:
        """Kills the nodes: what they have written is about to be deleted anyway."""
        for node in self._nodes.nodes if self._nodes is not None else ():
            self._kill(node)

    def _start(self, cancelled: Callable[[], bool]) -> None:
        assert self._nodes is not None
        for node in self._nodes.nodes:
            if cancelled():
                return
            self._start_node(node)
        for node in self._nodes.nodes:
            node.wait_ready(START_S, cancelled=cancelled)
        all_ids = {broker.node_id for broker in self.brokers}
        while not cancelled() and not all(broker.known_brokers() >= all_ids for broker in self.brokers):
            time.sleep(_POLL_S)
        if not cancelled():
            with Admin(self.bootstrap) as admin:
                for topic in TOPICS:
                    admin.topics.create(topic, partitions=PARTITIONS, replication_factor=BROKERS, configs=_TOPIC)

    def _start_node(self, node: LocalNode) -> None:
        node.inherited_fds = (self._cleanup.alive_fd,)
        node.start()
        assert node.process is not None
        self._cleanup.started(node.process.pid)

    def _kill(self, node: LocalNode) -> None:
        if node.process is not None:
            self._cleanup.ended(node.process.pid)
            node.kill()

    def _broker(self, broker_id: int) -> LocalNode:
        return next(broker for broker in self.brokers if broker.node_id == broker_id)


@dataclass(frozen=True, slots=True)
class BrokerView:
    leads: int
    in_sync: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    brokers: dict[int, BrokerView] = field(default_factory=dict)
    partitions: int = 0
    without_leader: int = 0
    under_replicated: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    """The lag of each group."""

    @property
    def is_in_sync(self) -> bool:
        return bool(self.partitions) and not self.without_leader and not self.under_replicated


class ClusterObserver:
    def __init__(self, bootstrap: str, broker_ids: Sequence[int]) -> None:
        self._bootstrap = bootstrap
        self._broker_ids = broker_ids
        self.view = ClusterView()
        self.error = ""
        """Why the view is out of date, if it is."""
        self.stopping = threading.Event()

    def run(self) -> None:
        with Admin(self._bootstrap, timeout=_REQUEST_S) as admin:
            while not self.stopping.wait(_OBSERVE_S):
                try:
                    self.view = self._observe(admin)
                    self.error = ""
                except (ClientError, KafkaError) as error:  # while leaders change; the next attempt may succeed
                    self.error = " ".join(str(error).split())

    def _observe(self, admin: Admin) -> ClusterView:
        partitions = [each for topic in admin.topics.list(internal=True) for each in topic.partitions]
        known = {group.group_id for group in admin.groups.list()}
        return ClusterView(
            {
                broker_id: BrokerView(
                    sum(each.leader == broker_id for each in partitions),
                    sum(broker_id in each.isr for each in partitions),
                    sum(broker_id in each.replicas for each in partitions),
                )
                for broker_id in self._broker_ids
            },
            len(partitions),
            sum(each.leader is None for each in partitions),
            sum(each.under_replicated for each in partitions),
            {group: sum(each.lag or 0 for each in admin.groups.lag(group)) for group in GROUPS if group in known},
        )
