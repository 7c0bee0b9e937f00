"""Real clusters for tests: brokers and controllers as processes, on free ports, in a directory of the test.

    with start_cluster(tmp_path, brokers=3) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.leader_of("orders", 0).kill()       # kill -9
        cluster.active_controller().pause()         # SIGSTOP
        ...
        cluster.wait_for_isr("orders")              # every replica in sync again

With `proxied=True` the nodes communicate through links that can be cut: `cluster.isolate(node)` separates a broker or a
controller from all other nodes, but not from clients; `cluster.rejoin(node)` ends that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.client.wire.admin.topics import TopicDescription
from penstock.local.cluster import LocalCluster, plan_cluster
from penstock.local.node import CONTROLLER_LISTENER
from penstock.local.ports import free_ports, is_free
from penstock.local.process import NodeFailed
from penstock.local.supervisor import stop_in_order
from penstock.model.errors import KafkaError
from penstock.testing.nodes import RunningNode
from penstock.testing.proxy import EVERYBODY, Link, Network, start_network

_POLL_S = 0.02
_PORT_ATTEMPTS = 5
_CLIENT_LISTENER = "PLAINTEXT"
_REPLICATION_LISTENER = "REPLICATION"
_PROTOCOLS = "listener.security.protocol.map"
READY_S = 60.0


class RunningCluster:
    def __init__(
        self,
        brokers: Sequence[RunningNode],
        controllers: Sequence[RunningNode],
        wires: Wires | None,
        client_options: Mapping[str, str] | None = None,
    ) -> None:
        self._client_options = dict(client_options or {})
        self.brokers = list(brokers)
        self.controllers = list(controllers)
        self._wires = wires

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def broker(self, broker_id: int) -> RunningNode:
        return next(broker for broker in self.brokers if broker.node_id == broker_id)

    def controller(self, node_id: int) -> RunningNode:
        return next(controller for controller in self.controllers if controller.node_id == node_id)

    @contextlib.contextmanager
    def admin(self, timeout: float = 5.0) -> Iterator[Admin]:
        """An Admin at the first broker that answers; paused ones are skipped after the timeout."""
        addresses = ",".join(broker.bootstrap for broker in self.brokers if broker.running)
        with Admin(addresses, timeout=timeout, options=self._client_options) as admin:
            yield admin

    def describe(self, topic: str) -> TopicDescription:
        with self.admin() as admin:
            (described,) = admin.topics.describe([topic])
        return described

    def create_topic(
        self, topic: str, partitions: int, replicas: int | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, ready to use on return: every partition has its leader and its whole ISR."""
        with self.admin(timeout=30.0) as admin:
            admin.topics.create(topic, partitions=partitions, replication_factor=replicas, configs=configs)
        self.wait_for_isr(topic)

    def leader_of(self, topic: str, partition: int) -> RunningNode:
        """Return the leader, after waiting for one that runs."""
        leaders: list[RunningNode] = []

        def led() -> bool:
            leader = self.describe(topic).partitions[partition].leader
            leaders[:] = [] if leader is None else [self.broker(leader)]
            return bool(leaders) and leaders[0].running

        self.wait_until(led, f"a leader of {topic}-{partition}")
        return leaders[0]

    def active_controller(self) -> RunningNode:
        """Return the leader of the quorum, after waiting for one that runs."""
        found: list[RunningNode] = []

        def led() -> bool:
            with self.admin() as admin:
                quorum = admin.cluster.quorum()
            found[:] = [node for node in self.controllers if quorum and node.node_id == quorum.leader_id]
            return bool(found) and found[0].running

        self.wait_until(led, "an active controller")
        return found[0]

    def wait_for_isr(self, topic: str, timeout: float = READY_S) -> None:
        """Wait until every running broker reports for every partition a leader and all replicas in sync."""

        def whole() -> bool:
            for broker in self.brokers:
                if broker.running:
                    with Admin(broker.bootstrap, timeout=5.0, options=self._client_options) as admin:
                        (described,) = admin.topics.describe([topic])
                    if any(each.under_replicated or each.leader is None for each in described.partitions):
                        return False
            return True

        self.wait_until(whole, f"the whole ISR of {topic}", timeout)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout: float = READY_S) -> None:
        """Poll a condition, ignoring the errors of a cluster with faults."""
        deadline = time.monotonic() + timeout
        last = ""
        while True:
            try:
                if condition():
                    return
            except (KafkaError, ClientError) as error:
                last = f"; {error}"
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout:g} s{last}")
            time.sleep(_POLL_S)

    def isolate(self, node: RunningNode) -> None:
        """Separate a node from every other, in both directions; clients still reach a broker."""
        assert self._wires is not None, "start the cluster with proxied=True"
        self._wires.cut(node)

    def rejoin(self, node: RunningNode) -> None:
        assert self._wires is not None
        self._wires.join(node)

    @property
    def wires(self) -> Wires:
        """The links between nodes, for other network faults."""
        assert self._wires is not None, "start the cluster with proxied=True"
        return self._wires


class Wires:
    """The links between nodes: one to the replication listener of each broker, one to each controller.

    A node's addresses are the same for all others, so links identify the peer by its process.
    """

    def __init__(self, network: Network, cluster: LocalCluster) -> None:
        self._network = network
        self._links: dict[int, Link] = {}
        self._cut_pids: dict[int, int] = {}
        for controller in cluster.controllers:
            link = self._links[controller.node_id] = network.link(controller.port)
            controller.properties["advertised.listeners"] = f"{CONTROLLER_LISTENER}://{link.address}"
        voters = ",".join(f"{node.node_id}@{self._links[node.node_id].address}" for node in cluster.controllers)
        for broker, port in zip(cluster.brokers, free_ports(len(cluster.brokers)), strict=True):
            link = self._links[broker.node_id] = network.link(port)
            clients = f"PLAINTEXT://{broker.address}"
            broker.properties |= {
                "listeners": f"{clients},{_REPLICATION_LISTENER}://{broker.host}:{port}",
                "advertised.listeners": f"{clients},{_REPLICATION_LISTENER}://{link.address}",
                "inter.broker.listener.name": _REPLICATION_LISTENER,
                **_like_clients(broker.properties, _REPLICATION_LISTENER),
            }
        for node in cluster.nodes:
            node.properties["controller.quorum.voters"] = voters

    def delay(self, seconds: float) -> None:
        """Delay everything between nodes, in each direction."""
        for link in self._links.values():
            self._network.delay(link, seconds)

    def reset(self, node: RunningNode) -> None:
        """Break the connections of other nodes to a node."""
        self._network.reset(self._links[node.node_id])

    def refuse(self, node: RunningNode) -> None:
        """Also refuse new connections, until `accept`."""
        self._network.refuse(self._links[node.node_id])

    def accept(self, node: RunningNode) -> None:
        self._network.accept(self._links[node.node_id])

    def cut(self, node: RunningNode) -> None:
        self._cut_pids[node.node_id] = node.pid
        for other, link in self._links.items():
            self._network.cut(link, EVERYBODY if other == node.node_id else node.pid)

    def join(self, node: RunningNode) -> None:
        pid = self._cut_pids.pop(node.node_id)
        for other, link in self._links.items():
            self._network.join(link, EVERYBODY if other == node.node_id else pid)


def _like_clients(properties: Mapping[str, str], listener: str) -> dict[str, str]:
    """The settings that make a listener as secure as the one for clients."""
    given = properties.get(_PROTOCOLS, f"{_CLIENT_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT")
    protocols = dict(pair.split(":") for pair in given.split(","))
    protocols[listener] = protocols[_CLIENT_LISTENER]
    prefix = f"listener.name.{_CLIENT_LISTENER.lower()}."
    own = {
        f"listener.name.{listener.lower()}.{name.removeprefix(prefix)}": value
        for name, value in properties.items()
        if name.startswith(prefix)
    }
    return {**own, _PROTOCOLS: ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())}


@contextlib.contextmanager
def start_cluster(
    directory: str | os.PathLike[str],
    *,
    brokers: int = 3,
    controllers: int = 3,
    properties: Mapping[str, str] | None = None,
    proxied: bool = False,
    ready_timeout: float = READY_S,
    client_options: Mapping[str, str] | None = None,
) -> Iterator[RunningCluster]:
    """Start a cluster in which every broker knows all others. Leaving the block ends every process.

    `client_options` are the security settings of clients.
    """
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(start_network()) if proxied else None
        planned, wires = _start(
            os.fspath(directory), brokers, controllers, properties, network, ready_timeout, client_options or {}
        )
        stack.callback(stop_in_order, planned.nodes, 10.0)
        yield RunningCluster(
            [RunningNode(node, ready_timeout) for node in planned.brokers],
            [RunningNode(node, ready_timeout) for node in planned.controllers],
            wires,
            client_options,
        )


def _start(
    directory: str,
    brokers: int,
    controllers: int,
    properties: Mapping[str, str] | None,
    network: Network | None,
    ready_timeout: float,
    client_options: Mapping[str, str],
) -> tuple[LocalCluster, Wires | None]:
    """Start on free ports, and on others if another process takes one meanwhile."""
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        planned = plan_cluster(
            directory, host="127.0.0.1", ports=free_ports(brokers), controllers=controllers, properties=properties
        )
        for node in planned.nodes:
            node.client_options.update(client_options)
        wires = Wires(network, planned) if network is not None else None
        try:
            for node in planned.nodes:
                node.start()
            deadline = time.monotonic() + ready_timeout
            for node in planned.nodes:
                node.wait_ready(max(0.1, deadline - time.monotonic()))
            everybody = {broker.node_id for broker in planned.brokers}
            while not all(broker.known_brokers() >= everybody for broker in planned.brokers):
                if time.monotonic() > deadline:
                    raise NodeFailed(f"not every broker knows all others after {ready_timeout:g} s")
                time.sleep(_POLL_S)
            return planned, wires
        except BaseException as error:
            taken = [node for node in planned.nodes if not node.running and not is_free(node.port)]
            for node in planned.nodes:
                node.kill()
            if not isinstance(error, NodeFailed) or attempt == _PORT_ATTEMPTS or not taken:
                raise
    raise AssertionError("unreachable")
