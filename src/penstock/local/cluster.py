"""A cluster of local nodes: its members, their ports and their settings.

    DIR/node-1 ... node-N         one broker: a node in both roles (ids from 1)
                                  several: brokers, with separate controllers
    DIR/controller-1 ... -M       the metadata quorum (ids from 10001)

A cluster of several brokers has separate controllers, so that any number of brokers can die without stopping the
quorum. The controllers listen on loopback, on ports that are chosen once and stored in their `server.properties`; all
nodes name them in `controller.quorum.voters`. A directory keeps the kind of cluster it was created as: brokers can be
added, but a cluster of one, whose broker is its own quorum, does not become one of several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.local.node import CONTROLLER_LISTENER, LocalNode
from penstock.local.ports import free_ports, is_free
from penstock.model.ids import uuid_text
from penstock.settings.properties import parse_properties

FIRST_CONTROLLER_ID = 10_001
CONTROLLER_HOST = "127.0.0.1"
REPLICATION_FACTOR_MAX = 3
METRICS_LISTENER = "penstock.metrics.listener"
METRICS_PORT_ABOVE = 1000  # a broker on 9092 has its metrics on 10092


class BadLayout(Exception):
    """The directory holds another kind of cluster; the message is one line."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    brokers: tuple[LocalNode, ...]
    controllers: tuple[LocalNode, ...]

    @property
    def nodes(self) -> tuple[LocalNode, ...]:
        """The nodes in the order in which to start them."""
        return (*self.controllers, *self.brokers)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)


def plan_cluster(
    directory: str,
    *,
    host: str,
    ports: list[int],
    controllers: int = 3,
    properties: Mapping[str, str] | None = None,
    metrics: bool = False,
    metrics_host: str | None = None,
) -> LocalCluster:
    """Return the nodes of a cluster with a broker on each of the ports; nothing is started or written yet.

    The number of controllers is for a new cluster; an existing one keeps its own. With `metrics` every node gets a port
    for them, unless its properties set one or it already has one; on `metrics_host`, or else where it listens.
    """
    planned = _plan(directory, host, ports, controllers, properties)
    if metrics and METRICS_LISTENER not in (properties or {}):
        _add_metrics(planned, metrics_host)
    return planned


def _plan(
    directory: str, host: str, ports: list[int], controllers: int, properties: Mapping[str, str] | None
) -> LocalCluster:
    brokers = len(ports)
    _check_kind(directory, brokers)
    if brokers == 1:
        only = LocalNode(1, os.path.join(directory, "node-1"), host=host, port=ports[0], properties=properties)
        return LocalCluster((only,), ())
    controllers = _known_voters(directory) or controllers
    places = _controller_ports(directory, controllers, avoid=ports)
    shared = {
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.voters": ",".join(
            f"{FIRST_CONTROLLER_ID + index}@{CONTROLLER_HOST}:{port}" for index, port in enumerate(places)
        ),
        "penstock.cluster.id": cluster_id_of(directory) or _new_cluster_id(),
        **(properties or {}),
    }
    defaults = replication_defaults(brokers)
    return LocalCluster(
        tuple(
            LocalNode(
                number,
                os.path.join(directory, f"node-{number}"),
                host=host,
                port=port,
                roles="broker",
                properties=shared,
                defaults=defaults,
            )
            for number, port in enumerate(ports, 1)
        ),
        tuple(
            LocalNode(
                FIRST_CONTROLLER_ID + index,
                os.path.join(directory, f"controller-{index + 1}"),
                host=CONTROLLER_HOST,
                port=port,
                roles="controller",
                properties=shared,
                defaults=defaults,
            )
            for index, port in enumerate(places)
        ),
    )


def _add_metrics(cluster: LocalCluster, metrics_host: str | None) -> None:
    """Add a metrics port to each node: one that is easy to guess if it is free, otherwise any other.

    A node keeps the port in its file as long as that is available.
    """
    taken = {node.port for node in cluster.nodes}
    for node in cluster.nodes:
        host = metrics_host or node.host
        ours = f"[{host}]:" if ":" in host else f"{host}:"
        remembered = properties_of(node.directory).get(METRICS_LISTENER)
        port = _port_of(remembered or "")
        if remembered is not None and not (remembered.startswith(ours) and port and not is_free(port, host)):
            node.properties[METRICS_LISTENER] = remembered
        else:
            guess = node.port + METRICS_PORT_ABOVE
            ports = [guess] if node.is_broker and guess < 65536 else []
            ports += free_ports(len(taken) + 1, host)
            port = next(port for port in ports if port not in taken and is_free(port, host))
            node.properties[METRICS_LISTENER] = f"{ours}{port}"
        taken.add(port)


def _port_of(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else 0


def replication_defaults(brokers: int) -> dict[str, str]:
    """Use as many replicas as are useful; with three, one may be down and acks=all still means two copies."""
    factor = str(min(REPLICATION_FACTOR_MAX, brokers))
    in_sync = "2" if brokers >= REPLICATION_FACTOR_MAX else "1"
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
    }


def cluster_id_of(directory: str) -> str | None:
    """Return the cluster id that the nodes in this directory were formatted with."""
    for name in sorted(_entries(directory)):
        path = os.path.join(directory, name, "data", "meta.properties")
        if re.fullmatch(r"(node|controller)-\d+", name) and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                cluster_id = parse_properties(file.read()).get("cluster.id")
            if cluster_id:
                return cluster_id
    return None


def _check_kind(directory: str, brokers: int) -> None:
    known = _numbered(directory, "node")
    several = _numbered(directory, "controller") > 0
    if several and brokers < known:
        raise BadLayout(
            f"{directory} holds a cluster of {known} brokers; start it with --brokers {known} or more, "
            "or choose another directory with --data"
        )
    if known and not several and brokers > 1:
        raise BadLayout(
            f"{directory} holds a cluster of one, whose only node is its controller, too; choose another directory "
            "for a cluster of several brokers with --data"
        )


def _controller_ports(directory: str, count: int, avoid: list[int]) -> list[int]:
    """Return the stored ports that are still free, and new ones for the others."""
    ports: list[int | None] = [_remembered_port(directory, number) for number in range(1, count + 1)]
    ports = [port if port is not None and port not in avoid and is_free(port) else None for port in ports]
    taken = {*avoid, *(port for port in ports if port is not None)}
    fresh = iter([port for port in free_ports(count + len(taken), CONTROLLER_HOST) if port not in taken])
    return [port if port is not None else next(fresh) for port in ports]


def _remembered_port(directory: str, number: int) -> int | None:
    match = re.search(r":(\d+)$", _remembered(directory, number).get("listeners", ""))
    return int(match.group(1)) if match else None


def _known_voters(directory: str) -> int:
    return len(list(filter(None, _remembered(directory, 1).get("controller.quorum.voters", "").split(","))))


def _remembered(directory: str, controller: int) -> dict[str, str]:
    return properties_of(os.path.join(directory, f"controller-{controller}"))


def properties_of(directory: str) -> dict[str, str]:
    try:
        with open(os.path.join(directory, "server.properties"), encoding="utf-8") as file:
            return parse_properties(file.read())
    except FileNotFoundError:
        return {}


def _numbered(directory: str, kind: str) -> int:
    """Return the highest number among `DIR/<kind>-1`, `-2`, ... that were started before."""
    found = [re.fullmatch(rf"{kind}-(\d+)", name) for name in _entries(directory)]
    started = [
        int(match.group(1))
        for match in found
        if match and os.path.exists(os.path.join(directory, match.group(0), "data", "meta.properties"))
    ]
    return max(started, default=0)


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _new_cluster_id() -> str:
    while True:
        text = uuid_text(os.urandom(16))
        if not text.startswith("-"):
            return text
