"""Streams groups on a running broker: internal topics are created, tasks assigned, and offsets committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streams_requests
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from waiting import wait_until
from wire import Wire, alter_configs, create_topic, metadata_of

Names = Callable[[str], str]
GROUP_RESOURCE = 32
MISSING_SOURCE_TOPICS, MISSING_INTERNAL_TOPICS = 1, 3


def beat(wire: Wire, group: str, epoch: int = 0, **options: str) -> Any:
    return wire.ask(streams_requests.heartbeat(group, "m", epoch, options))


def test_an_application(wire: Wire, unique_topic: Names) -> None:
    topic, group = unique_topic("input"), unique_topic("application")
    wait_until(
        lambda: not wire.ask(FindCoordinatorRequest(coordinator_keys=[group])).coordinators[0].error_code,
        "the group has a coordinator",
    )
    no_delay, too_many = {"streams.initial.rebalance.delay.ms": "0"}, {"streams.num.standby.replicas": "3"}
    assert alter_configs(wire, GROUP_RESOURCE, group, no_delay) == ErrorCode.NONE
    assert alter_configs(wire, GROUP_RESOURCE, group, too_many) == ErrorCode.INVALID_CONFIG
    topology = f"0:{topic}>{group}-r/1:<{group}-r+{group}-c"
    answer = beat(wire, group, topology=topology)
    assert [each.status_code for each in answer.status] == [MISSING_SOURCE_TOPICS]
    create_topic(wire, topic, partitions=2)

    def assigned() -> bool:
        nonlocal answer
        answer = beat(wire, group, answer.member_epoch)
        assert not answer.error_code, answer.error_message
        return bool(answer.active_tasks)

    wait_until(assigned, "the tasks are assigned")
    assert [(each.subtopology_id, each.partitions) for each in answer.active_tasks] == [("0", [0, 1]), ("1", [0, 1])]
    assert [len(metadata_of(wire, f"{group}-{name}").partitions) for name in "rc"] == [2, 2]

    (one,) = wire.ask(StreamsGroupDescribeRequest(group_ids=[group], include_topology_description=True)).groups
    assert (one.group_state, one.assignor_name, one.topology_description_status) == ("Stable", "sticky", 1)
    assert [each.state_changelog_topics[0].partitions for each in one.topology.subtopologies[1:]] == [2]
    (listed,) = (
        each for each in wire.ask(ListGroupsRequest(types_filter=["streams"])).groups if each.group_id == group
    )
    assert (listed.protocol_type, listed.group_state) == ("streams", "Stable")

    assert not beat(wire, group, -1).error_code
    (deleted,) = wire.ask(DeleteGroupsRequest(groups_names=[group])).results
    assert deleted.error_code == ErrorCode.NONE


def test_topologies_with_topics_that_cannot_be(wire: Wire, unique_topic: Names) -> None:
    for topology in ("0:__consumer_offsets", "0:a:colon", "0:a+a blank"):
        assert beat(wire, unique_topic("bad"), topology=topology).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_descriptions_of_topologies_are_refused(wire: Wire) -> None:
    """As by a Kafka broker without a plug-in that stores them."""
    request = StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id="m", topology_epoch=1)
    assert wire.ask(request).error_code == ErrorCode.UNSUPPORTED_VERSION
