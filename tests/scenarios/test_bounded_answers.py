"""Requests that name the same thing again and again, or too many things, get answers of bounded size."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.broker.apis.describe_configs import RESOURCES_MAX
from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from penstock.testing.nodes import RunningNode, start_node
from wire import Wire

TIMES = 1000


@pytest.fixture
def connection(broker: RunningNode) -> Iterator[Connection]:
    host, _, port = broker.bootstrap.rpartition(":")
    with Connection(host, int(port)) as connected:
        yield connected


def test_groups_and_transactions_are_told_once(connection: Connection) -> None:
    groups = connection.request(DescribeGroupsRequest(groups=["g"] * TIMES), DescribeGroupsResponse).groups
    assert [group.group_id for group in groups] == ["g"]
    asked = DescribeTransactionsRequest(transactional_ids=["x", "y"] * TIMES)
    states = connection.request(asked, DescribeTransactionsResponse).transaction_states
    assert sorted(state.transactional_id for state in states) == ["x", "y"]


def test_producers_of_a_partition_are_told_once(
    connection: Connection, broker: RunningNode, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("bounded")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(topic, partitions=1)
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0] * TIMES)])
    (result,) = connection.request(asked, DescribeProducersResponse).topics
    assert [partition.partition_index for partition in result.partitions] == [0]


def test_all_offsets_of_a_group_are_told_once(
    connection: Connection, broker: RunningNode, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("bounded")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(topic, partitions=1)
        admin.groups.alter_offsets(topic, {TopicPartition(topic, 0): 5})
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=topic, topics=None)] * TIMES)
    groups = connection.request(asked, OffsetFetchResponse).groups
    assert [partition.committed_offset for group in groups for partition in group.topics[0].partitions] == [5]


def test_settings_of_too_many_resources_are_refused(connection: Connection) -> None:
    resources = [
        DescribeConfigsResource(
            resource_type=ResourceType.GROUP,
            resource_name=f"g{number}",
            configuration_keys=["consumer.session.timeout.ms"],
        )
        for number in range(RESOURCES_MAX + 2)
    ]
    results = connection.request(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse).results
    refused = [result.resource_name for result in results if result.error_code]
    assert refused == [f"g{RESOURCES_MAX}", f"g{RESOURCES_MAX + 1}"]
    assert results[-1].error_code == ErrorCode.INVALID_REQUEST


def test_groups_of_the_newer_protocols_are_told_once_if_there_are_many(connection: Connection) -> None:
    asked = ConsumerGroupDescribeRequest(group_ids=["g"] * TIMES)
    groups = connection.request(asked, ConsumerGroupDescribeResponse).groups
    assert [group.group_id for group in groups] == ["g"]


def test_unknown_states_of_transactions_are_told_at_once(connection: Connection) -> None:
    """Each was looked up in the list of those before it: a megabyte of them stopped the broker for minutes."""
    names = [f"state{number}" for number in range(50_000)]
    asked = ListTransactionsRequest(state_filters=[*names, *names])
    listed = connection.request(asked, ListTransactionsResponse, timeout=30)
    assert listed.unknown_state_filters == names


def test_filters_of_groups_may_be_many(connection: Connection) -> None:
    names = [f"state{number}" for number in range(50_000)]
    assert connection.request(ListGroupsRequest(states_filter=names), ListGroupsResponse).groups == []
    listed = connection.request(ListGroupsRequest(states_filter=[*names, " EMPTY "]), ListGroupsResponse)
    assert {group.group_state for group in listed.groups} <= {"Empty"}


def test_a_clients_next_question_waits_in_its_socket(tmp_path: Path) -> None:
    """While it is answered, such a question takes thirty times the memory that it has on the wire."""
    with start_node(tmp_path / "node") as node, Wire(node) as wire:
        questions = wire.encode(DescribeGroupsRequest(groups=[f"group{number}" for number in range(50_000)])) * 25

        def ask() -> None:
            with contextlib.suppress(OSError):  # the connection is closed below
                wire.socket.sendall(questions)

        before = peak_memory(node)
        asking = threading.Thread(target=ask)
        asking.start()
        wire.receive_frame()
        grown = peak_memory(node) - before
        wire.socket.shutdown(socket.SHUT_RDWR)
        asking.join()
    assert grown < 100 * 1024 * 1024


def peak_memory(node: RunningNode) -> int:
    status = Path(f"/proc/{node.pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
