"""Share groups on a running broker: a member, the state of its partitions, and the offsets APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    read_share_group_state,
    write_share_group_state,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.share_state.key import SharePartitionKey
from waiting import wait_until
from wire import Wire, batch, create_topic, metadata_of, produce

Names = Callable[[str], str]
GROUP, SHARE = 0, 2


def coordinator_is_there(wire: Wire, kind: int, key: str) -> None:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    wait_until(lambda: not wire.ask(request).coordinators[0].error_code, f"{key} has a coordinator")


def beat(wire: Wire, group: str, topic: str | None = None, epoch: int = 0) -> Any:
    names = None if topic is None else [topic]
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=names
    )
    return wire.ask(request)


def joined(wire: Wire, group: str, topic: str) -> Any:
    """The answer that has the partitions of the topic."""
    coordinator_is_there(wire, GROUP, group)
    answer = beat(wire, group, topic)

    def assigned() -> Any:
        nonlocal answer
        if not answer.assignment or not answer.assignment.topic_partitions:
            answer = beat(wire, group, topic, answer.member_epoch)
        assert not answer.error_code, answer.error_message
        return answer.assignment and answer.assignment.topic_partitions

    wait_until(assigned, "the partitions are assigned")
    return answer


def described(wire: Wire, group: str, topic: str | None = None) -> dict[int, tuple[int, int, int]]:
    topics = None if topic is None else [describe_share_group_offsets.Topic(topic_name=topic, partitions=[0, 1])]
    asked = describe_share_group_offsets.Group(group_id=group, topics=topics)
    (result,) = wire.ask(describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    assert not result.error_code
    return {
        part.partition_index: (part.start_offset, part.leader_epoch, part.lag)
        for each in result.topics
        for part in each.partitions
    }


def alter(wire: Wire, group: str, topic: str, **offsets: int) -> Any:
    parts = [
        alter_share_group_offsets.Partition(partition_index=int(index.strip("p")), start_offset=offset)
        for index, offset in offsets.items()
    ]
    asked = alter_share_group_offsets.Topic(topic_name=topic, partitions=parts)
    return wire.ask(alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id=group, topics=[asked]))


def test_a_member_gets_partitions_and_their_state_is_kept(wire: Wire, unique_topic: Names) -> None:
    topic, group = unique_topic("shared"), unique_topic("group")
    create_topic(wire, topic, partitions=2)
    produce(wire, topic, batch("a", "b", "c"))
    topic_id = metadata_of(wire, topic).topic_id
    answer = joined(wire, group, topic)
    (assigned,) = answer.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic_id, [0, 1])
    coordinator_is_there(wire, SHARE, str(SharePartitionKey(group, topic_id, 0)))

    (one,) = wire.ask(ShareGroupDescribeRequest(group_ids=[group])).groups
    assert (one.group_state, one.assignor_name, one.members[0].member_id) == ("Stable", "simple", "m")
    (listed,) = (each for each in wire.ask(ListGroupsRequest(types_filter=["share"])).groups if each.group_id == group)
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("share", "Stable", "share")

    # What the leader of the partition does.
    def leads(message: Any) -> Any:
        ((result,),) = (each.partitions for each in wire.ask(message).results)
        return result

    read = read_share_group_state.ReadShareGroupStateRequest(
        group_id=group,
        topics=[
            read_share_group_state.ReadStateData(
                topic_id=topic_id, partitions=[read_share_group_state.Partition(partition=0, leader_epoch=4)]
            )
        ],
    )
    state = leads(read)
    assert (state.error_code, state.start_offset, state.state_batches) == (0, -1, [])
    written = write_share_group_state.Partition(
        partition=0,
        state_epoch=state.state_epoch,
        leader_epoch=4,
        start_offset=1,
        delivery_complete_count=1,
        state_batches=[write_share_group_state.StateBatch(first_offset=2, last_offset=2, delivery_state=2)],
    )
    data = write_share_group_state.WriteStateData(topic_id=topic_id, partitions=[written])
    assert leads(write_share_group_state.WriteShareGroupStateRequest(group_id=group, topics=[data])).error_code == 0
    assert [each.first_offset for each in leads(read).state_batches] == [2]
    # Three records, of which the first is before the start and the last is done.
    assert described(wire, group) == {0: (1, 4, 1), 1: (-1, -1, -1)}
    assert described(wire, group, topic) == described(wire, group)

    # Only an empty group may be changed.
    assert alter(wire, group, topic, p0=0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert wire.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert beat(wire, group, epoch=-1).error_code == 0
    assert alter(wire, group, topic, p0=0).error_code == 0
    assert described(wire, group)[0] == (0, -1, 3)
    written.state_epoch = state.state_epoch
    fenced = write_share_group_state.WriteShareGroupStateRequest(group_id=group, topics=[data])
    assert leads(fenced).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert wire.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code == 0
    assert leads(read).error_code == ErrorCode.INVALID_REQUEST
    assert described(wire, group) == {}


def test_offsets_without_a_member(wire: Wire, unique_topic: Names) -> None:
    topic, group = unique_topic("shared"), unique_topic("group")
    create_topic(wire, topic, partitions=2)
    coordinator_is_there(wire, GROUP, group)
    answer = alter(wire, group, topic, p1=0, p7=0)
    assert [part.error_code for part in answer.responses[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert described(wire, group) == {1: (0, -1, 0)}

    def delete(*names: str) -> list[tuple[str, int]]:
        topics = [delete_share_group_offsets.Topic(topic_name=name) for name in names]
        asked = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics)
        answer = wire.ask(asked)
        assert not answer.error_code
        return sorted((each.topic_name, each.error_code) for each in answer.responses)

    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(topic, "zzz-none") == [(topic, 0), ("zzz-none", missing)]
    assert delete(topic) == [(topic, missing)]
    assert described(wire, group) == {}


@pytest.mark.parametrize("key", ["", "g", "g:x:0", f"g:{'A' * 22}:x"])
def test_keys_that_have_no_share_coordinator(wire: Wire, key: str) -> None:
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
    assert wire.ask(request).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_share_partitions_are_no_keys_of_older_versions(wire: Wire) -> None:
    key = str(SharePartitionKey("g", b"x" * 16, 0))
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
    assert wire.ask(request, 5).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_member_id_is_at_most_a_uuid(wire: Wire) -> None:
    for member_id in ("", "x" * 37):
        request = ShareGroupHeartbeatRequest(group_id="g", member_id=member_id, subscribed_topic_names=["t"])
        assert wire.ask(request).error_code == ErrorCode.INVALID_REQUEST


def test_state_of_nothing(wire: Wire) -> None:
    asked = read_share_group_state.ReadStateData(
        topic_id=ZERO_UUID, partitions=[read_share_group_state.Partition(partition=0, leader_epoch=0)]
    )
    assert wire.ask(read_share_group_state.ReadShareGroupStateRequest(group_id="", topics=[asked])).results == []
