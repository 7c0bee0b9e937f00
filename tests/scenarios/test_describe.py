"""Describing requests as no client sends them, where Kafka's answer is not the obvious one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.describe_acls import DescribeAclsRequest
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from waiting import wait_until
from wire import TOPIC_RESOURCE, Wire, create_topic, metadata_of

Names = Callable[[str], str]


def test_a_topic_asked_for_twice_is_described_once(wire: Wire, unique_topic: Names) -> None:
    topic = unique_topic("twice")
    create_topic(wire, topic)
    names = [MetadataRequestTopic(name=topic), MetadataRequestTopic(name=topic)]
    assert [each.name for each in wire.ask(MetadataRequest(topics=names)).topics] == [topic]


def test_a_topic_asked_for_twice_is_created(wire: Wire, unique_topic: Names) -> None:
    topic = unique_topic("twice")
    names = [MetadataRequestTopic(name=topic), MetadataRequestTopic(name=topic)]
    wire.ask(MetadataRequest(topics=names, allow_auto_topic_creation=True))
    wait_until(lambda: not metadata_of(wire, topic).error_code, "the topic is created")


def test_no_keys_are_all_keys(wire: Wire, unique_topic: Names) -> None:
    topic = unique_topic("keys")
    create_topic(wire, topic)

    def described(keys: list[str] | None) -> list[str]:
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=keys)
        (result,) = wire.ask(DescribeConfigsRequest(resources=[resource])).results
        return [config.name for config in result.configs]

    assert described(["retention.ms"]) == ["retention.ms"]
    assert described([]) == described(None)
    assert len(described([])) > 20


@pytest.mark.parametrize(("cursor_topic", "partition"), [("asked", -1), ("another", 0)])
def test_a_cursor_that_points_nowhere_is_refused(
    wire: Wire, unique_topic: Names, cursor_topic: str, partition: int
) -> None:
    topic = unique_topic("cursor")
    create_topic(wire, topic)
    cursor = Cursor(topic_name=topic if cursor_topic == "asked" else "another", partition_index=partition)
    response = wire.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)], cursor=cursor))
    assert [(each.name, each.error_code) for each in response.topics] == [(topic, ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize("version", range(1, 4))
def test_a_coordinator_that_is_found_comes_with_a_message(wire: Wire, version: int) -> None:
    request = FindCoordinatorRequest(key="readers")
    wait_until(lambda: not wire.ask(request, version).error_code, "a coordinator is found")
    assert wire.ask(request, version).error_message == "NONE"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_are_no_acls_without_an_authorizer(wire: Wire, version: int) -> None:
    described = wire.ask(DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), version)
    acl = AclCreation(resource_type=2, resource_name="a", operation=3, permission_type=3)
    wanted = DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
    created = wire.ask(CreateAclsRequest(creations=[acl, acl]), version)
    deleted = wire.ask(DeleteAclsRequest(filters=[wanted, wanted]), version)
    answers = [described, *created.results, *deleted.filter_results]
    assert {answer.error_code for answer in answers} == {ErrorCode.SECURITY_DISABLED}
    # Kafka's own words.
    assert [answer.error_message for answer in answers] == [
        "No Authorizer is configured on the broker",
        *["No Authorizer is configured."] * 4,
    ]
