"""A client gets an address that it can use: of the listener it is connected to, with the host it connected to."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.local.ports import free_ports
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.testing.nodes import RunningNode, start_node
from wire import Wire, batch, create_topic, produce


def told(wire: Wire) -> list[tuple[int, str, int]]:
    """Brokers, by both requests that tell them."""
    by_metadata: Any = wire.ask(MetadataRequest(topics=[])).brokers
    by_cluster: Any = wire.ask(DescribeClusterRequest()).brokers
    assert [(b.node_id, b.host, b.port) for b in by_metadata] == [(b.broker_id, b.host, b.port) for b in by_cluster]
    return [(broker.node_id, broker.host, broker.port) for broker in by_metadata]


def other_address() -> str | None:
    """An address of this machine besides loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: nothing is sent
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


def test_a_wildcard_tells_each_client_the_address_it_used(tmp_path: Path) -> None:
    (port,) = free_ports(1, "127.0.0.1")
    with start_node(tmp_path, port=port, properties={"listeners": f"PLAINTEXT://:{port}"}):
        for address in ("127.0.0.1", "127.0.0.2", other_address()):
            if address is not None:
                with Wire((address, port)) as wire:
                    assert told(wire) == [(1, address, port)]
        if socket.has_ipv6:
            try:
                wire = Wire(("::1", port))
            except OSError:
                return  # a machine without it
            with wire:
                assert told(wire) == [(1, "::1", port)]


def test_what_is_advertised_wins(tmp_path: Path) -> None:
    (port,) = free_ports(1, "127.0.0.1")
    properties = {
        "listeners": f"PLAINTEXT://0.0.0.0:{port}",
        "advertised.listeners": "PLAINTEXT://kafka.example:1234",
    }
    with start_node(tmp_path, port=port, properties=properties), Wire(("127.0.0.1", port)) as wire:
        assert told(wire) == [(1, "kafka.example", 1234)]


def test_the_answer_is_of_the_listener_that_was_asked(tmp_path: Path) -> None:
    inside, outside = free_ports(2, "127.0.0.1")
    properties = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        "advertised.listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://public.example:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with start_node(tmp_path, port=inside, properties=properties):
        with Wire(("127.0.0.1", inside)) as wire:
            assert told(wire) == [(1, "127.0.0.1", inside)]
            create_topic(wire, "t")
        with Wire(("127.0.0.1", outside)) as wire:
            assert told(wire) == [(1, "public.example", outside)]
            assert produce(wire, "t", batch("a")).error_code == ErrorCode.NONE


def test_metadata_of_nothing_all_and_some(wire: Wire, broker: RunningNode, unique_topic: Callable[[str], str]) -> None:
    names = {unique_topic("some"), unique_topic("more")}
    for name in names:
        create_topic(wire, name)
    for version in range(14):
        everything = wire.ask(MetadataRequest(topics=None if version else []), version)
        assert names <= {topic.name for topic in everything.topics}
        assert [broker_.node_id for broker_ in everything.brokers] == [broker.node_id]
        some = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), version)
        assert {topic.name for topic in some.topics} == names
        for topic in some.topics:
            assert topic.error_code == ErrorCode.NONE
            (partition,) = topic.partitions
            assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
            assert (partition.leader_epoch >= 0) == (version >= 7)
            if version >= 8:
                assert topic.topic_authorized_operations == -(2**31)  # not asked for
        if version:
            assert wire.ask(MetadataRequest(topics=[]), version).topics == []
            assert everything.controller_id == broker.node_id
        if version >= 2:
            assert everything.cluster_id
