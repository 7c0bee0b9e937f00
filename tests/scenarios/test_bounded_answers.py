"""Requests that name the same thing again and again, or too many things, get answers of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.broker.apis.describe_configs import RESOURCES_MAX
from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
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
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from penstock.testing.nodes import RunningNode

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
