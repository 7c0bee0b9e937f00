"""What a group's coordinator tells strangers, latecomers, impostors and those that ask nonsense.

All of it holds for Apache Kafka, too: give PENSTOCK_TEST_BOOTSTRAP to see.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.declaration import Message
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import TopicPartitions
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.testing.nodes import start_node
from scenarios.coordinator_calls import (
    commit,
    committed,
    consumer_heartbeat,
    consumer_join,
    delete_offsets,
    find_coordinators,
    join,
    leave,
    new_topic,
    only_member,
    partition_errors,
    sync,
)
from wire import Wire

UNKNOWN_ID = b"\x77" * 16

NONE = ErrorCode.NONE
FENCED_INSTANCE_ID = ErrorCode.FENCED_INSTANCE_ID
FENCED_MEMBER_EPOCH = ErrorCode.FENCED_MEMBER_EPOCH
GROUP_ID_NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
GROUP_SUBSCRIBED_TO_TOPIC = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
INCONSISTENT_GROUP_PROTOCOL = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
INVALID_GROUP_ID = ErrorCode.INVALID_GROUP_ID
INVALID_REGULAR_EXPRESSION = ErrorCode.INVALID_REGULAR_EXPRESSION
INVALID_REQUEST = ErrorCode.INVALID_REQUEST
INVALID_SESSION_TIMEOUT = ErrorCode.INVALID_SESSION_TIMEOUT
MEMBER_ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
NON_EMPTY_GROUP = ErrorCode.NON_EMPTY_GROUP
OFFSET_METADATA_TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE
STALE_MEMBER_EPOCH = ErrorCode.STALE_MEMBER_EPOCH
UNKNOWN_MEMBER_ID = ErrorCode.UNKNOWN_MEMBER_ID
UNKNOWN_TOPIC_ID = ErrorCode.UNKNOWN_TOPIC_ID
UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNRELEASED_INSTANCE_ID = ErrorCode.UNRELEASED_INSTANCE_ID
UNSUPPORTED_ASSIGNOR = ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    if elsewhere := os.environ.get("PENSTOCK_TEST_BOOTSTRAP"):
        host, _, port = elsewhere.rpartition(":")
        yield host, int(port)
        return
    at_once = {"group.initial.rebalance.delay.ms": "0"}
    with start_node(tmp_path_factory.mktemp("group-errors") / "node", properties=at_once) as node:
        yield node.host, node.port


@pytest.fixture
def wire(address: tuple[str, int]) -> Iterator[Wire]:
    with Wire(address) as connection:
        find_coordinators(connection)
        yield connection


@pytest.fixture
def group(unique_topic: Callable[[str], str]) -> str:
    return unique_topic("group")


@pytest.fixture
def topic(wire: Wire, unique_topic: Callable[[str], str]) -> str:
    return new_topic(wire, unique_topic("topic"))


def error(wire: Wire, message: Message, version: int | None = None) -> ErrorCode:
    return ErrorCode(wire.ask(message, version).error_code)


def heartbeat(group: str, member_id: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation, group_instance_id=instance)


class TestGroupIds:
    def test_an_empty_one_is_no_group(self, wire: Wire, topic: str) -> None:
        assert [error(wire, join(""), version) for version in (0, 5, 9)] == [INVALID_GROUP_ID] * 3
        assert error(wire, sync("", "x", 1), 4) == INVALID_GROUP_ID
        assert error(wire, heartbeat("", "x", 1)) == INVALID_GROUP_ID
        assert error(wire, leave("", ("x", None))) == INVALID_GROUP_ID
        assert error(wire, delete_offsets("", (topic, 0))) == INVALID_GROUP_ID
        assert error(wire, consumer_join("", "x", topic)) == INVALID_REQUEST
        (described,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[""])).groups
        assert described.error_code == INVALID_GROUP_ID

    def test_offsets_of_old_may_have_no_group(self, wire: Wire, topic: str) -> None:
        """The empty group is where consumers without a group once kept theirs."""
        assert commit(wire, "", (topic, 0, 5)) == {(topic, 0): NONE}
        (answer,) = committed(wire, "", (topic, 0)).topics[0].partitions
        assert answer.committed_offset == 5

    @pytest.mark.parametrize("name", ["  ", "a b\N{SNOWMAN}/:*", "g" * 300])
    def test_any_other_name_is_as_good_as_another(self, wire: Wire, topic: str, name: str, group: str) -> None:
        named = name + group
        member = only_member(wire, named)
        assert error(wire, heartbeat(named, member.member_id, member.generation_id)) == NONE
        assert error(wire, leave(named, (member.member_id, None))) == NONE

    def test_there_are_coordinators_of_known_kinds_only(self, wire: Wire) -> None:
        (answer,) = wire.ask(FindCoordinatorRequest(key_type=7, coordinator_keys=["key"]), 4).coordinators
        assert (answer.error_code, answer.node_id) == (INVALID_REQUEST, -1)
        assert error(wire, FindCoordinatorRequest(key_type=7, key="key"), 3) == INVALID_REQUEST


class TestJoining:
    @pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
    @pytest.mark.parametrize("version", [0, 3, 9])
    def test_absurd_session_time_outs(self, wire: Wire, group: str, session_ms: int, version: int) -> None:
        assert error(wire, join(group, session_timeout_ms=session_ms), version) == INVALID_SESSION_TIMEOUT

    @pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
    def test_extreme_session_time_outs(self, wire: Wire, group: str, session_ms: int) -> None:
        assert error(wire, join(group, session_timeout_ms=session_ms), 9) == MEMBER_ID_REQUIRED

    def test_nothing_in_common_with_nobody(self, wire: Wire, group: str) -> None:
        for version in (3, 9):
            assert error(wire, join(group, protocols=()), version) == INCONSISTENT_GROUP_PROTOCOL
            assert error(wire, join(group, protocol_type=""), version) == INCONSISTENT_GROUP_PROTOCOL

    def test_strangers(self, wire: Wire, group: str) -> None:
        assert error(wire, join(group, "stranger"), 5) == UNKNOWN_MEMBER_ID
        only_member(wire, group)
        assert error(wire, join(group, "stranger"), 5) == UNKNOWN_MEMBER_ID

    def test_members_that_do_not_speak_as_the_others(self, wire: Wire, group: str) -> None:
        member = only_member(wire, group, protocols=("range", "roundrobin"))
        for version in (3, 9):
            assert error(wire, join(group, protocols=("sticky",)), version) == INCONSISTENT_GROUP_PROTOCOL
            assert error(wire, join(group, protocol_type="connect"), version) == INCONSISTENT_GROUP_PROTOCOL
        assert error(wire, join(group, member.member_id, protocol_type="connect"), 5) == INCONSISTENT_GROUP_PROTOCOL

    def test_a_refusal_has_no_protocol(self, wire: Wire, group: str) -> None:
        assert wire.ask(join(group, "stranger"), 6).protocol_name == ""
        assert wire.ask(join(group, "stranger"), 7).protocol_name is None


class TestMembers:
    def test_syncing(self, wire: Wire, group: str) -> None:
        assert error(wire, sync(group, "stranger", 1), 4) == UNKNOWN_MEMBER_ID
        member = only_member(wire, group)
        generation = member.generation_id
        assert error(wire, sync(group, member.member_id, generation - 1), 4) == ILLEGAL_GENERATION
        assert error(wire, sync(group, member.member_id, generation + 1), 4) == ILLEGAL_GENERATION
        assert error(wire, sync(group, "stranger", generation), 4) == UNKNOWN_MEMBER_ID
        assert error(wire, sync(group, "", generation), 4) == UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize(
        ("protocol_type", "protocol_name", "expected"),
        [
            ("consumer", "range", NONE),
            ("connect", "range", INCONSISTENT_GROUP_PROTOCOL),
            ("consumer", "roundrobin", INCONSISTENT_GROUP_PROTOCOL),
            ("consumer", None, INCONSISTENT_GROUP_PROTOCOL),
            (None, "range", INCONSISTENT_GROUP_PROTOCOL),
        ],
    )
    def test_syncing_names_the_protocol(
        self, wire: Wire, group: str, protocol_type: str, protocol_name: str, expected: ErrorCode
    ) -> None:
        member = only_member(wire, group)
        named = {"protocol_type": protocol_type, "protocol_name": protocol_name}
        assert error(wire, sync(group, member.member_id, member.generation_id, **named), 5) == expected

    def test_heartbeats(self, wire: Wire, group: str) -> None:
        assert error(wire, heartbeat(group, "stranger", 1)) == UNKNOWN_MEMBER_ID
        member = only_member(wire, group)
        member_id, generation = member.member_id, member.generation_id
        assert error(wire, heartbeat(group, member_id, generation)) == NONE
        for wrong in (-1, generation - 1, generation + 1):
            assert error(wire, heartbeat(group, member_id, wrong)) == ILLEGAL_GENERATION
        assert error(wire, heartbeat(group, "stranger", generation)) == UNKNOWN_MEMBER_ID
        assert error(wire, heartbeat(group, "", generation)) == UNKNOWN_MEMBER_ID
        assert error(wire, heartbeat(group, member_id, generation, "nobody")) == UNKNOWN_MEMBER_ID

    def test_leaving(self, wire: Wire, group: str) -> None:
        """Each that shall leave has its own error; in old requests there is but one."""
        identities = (("stranger", None), ("", "nobody"), ("", None))
        for _ in ("no such group", "a group of one"):
            answer = wire.ask(leave(group, *identities), 5)
            assert (answer.error_code, [each.error_code for each in answer.members]) == (NONE, [UNKNOWN_MEMBER_ID] * 3)
            assert error(wire, LeaveGroupRequest(group_id=group, member_id="stranger"), 2) == UNKNOWN_MEMBER_ID
            if not describe(wire, group).members:
                member = only_member(wire, group)
        answer = wire.ask(leave(group, (member.member_id, None)), 5)
        assert [each.error_code for each in answer.members] == [NONE]
        assert error(wire, heartbeat(group, member.member_id, member.generation_id)) == UNKNOWN_MEMBER_ID

    def test_whoever_has_a_members_name_is_that_member(self, wire: Wire, group: str, topic: str) -> None:
        member = only_member(wire, group, group_instance_id="static")
        member_id, generation = member.member_id, member.generation_id
        assert error(wire, join(group, "impostor", group_instance_id="static"), 5) == FENCED_INSTANCE_ID
        assert error(wire, sync(group, "impostor", generation, group_instance_id="static"), 4) == FENCED_INSTANCE_ID
        assert error(wire, heartbeat(group, "impostor", generation, "static")) == FENCED_INSTANCE_ID
        refused = commit(wire, group, (topic, 0, 1), member_id="impostor", generation=generation, instance="static")
        assert refused == {(topic, 0): FENCED_INSTANCE_ID}
        answer = wire.ask(leave(group, ("impostor", "static")), 5)
        assert [each.error_code for each in answer.members] == [FENCED_INSTANCE_ID]
        assert error(wire, heartbeat(group, member_id, generation, "another")) == UNKNOWN_MEMBER_ID

    def test_who_was_replaced_is_fenced(self, wire: Wire, group: str, topic: str) -> None:
        old = only_member(wire, group, group_instance_id="static")
        new = only_member(wire, group, group_instance_id="static")
        assert new.member_id != old.member_id
        assert error(wire, heartbeat(group, old.member_id, old.generation_id, "static")) == FENCED_INSTANCE_ID
        assert error(wire, join(group, old.member_id, group_instance_id="static"), 5) == FENCED_INSTANCE_ID
        assert error(wire, heartbeat(group, new.member_id, new.generation_id, "static")) == NONE


def describe(wire: Wire, group: str, version: int = 5) -> Any:
    (described,) = wire.ask(DescribeGroupsRequest(groups=[group]), version).groups
    return described


class TestCommits:
    def test_partitions_that_do_not_exist(self, wire: Wire, group: str, topic: str) -> None:
        missing = topic + "-missing"
        assert commit(wire, group, (topic, 0, 1), (topic, 9, 1), (topic, -1, 1), (missing, 0, 1)) == {
            (topic, 0): NONE,
            (topic, 9): UNKNOWN_TOPIC_OR_PARTITION,
            (topic, -1): UNKNOWN_TOPIC_OR_PARTITION,
            (missing, 0): UNKNOWN_TOPIC_OR_PARTITION,
        }
        (found,) = committed(wire, group, (topic, 0), (topic, 9)).topics
        assert [(each.committed_offset, each.error_code) for each in found.partitions] == [(1, NONE), (-1, NONE)]

    @pytest.mark.parametrize("topic_id", [UNKNOWN_ID, ZERO_UUID])
    def test_topic_ids_that_do_not_exist(self, wire: Wire, group: str, topic_id: bytes) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])]
        answer = wire.ask(OffsetCommitRequest(group_id=group, topics=topics), 10)
        assert set(partition_errors(answer.topics).values()) == {UNKNOWN_TOPIC_ID}

    @pytest.mark.parametrize(
        ("metadata", "expected"),
        [
            (None, NONE),
            ("m" * 4096, NONE),
            ("m" * 4097, OFFSET_METADATA_TOO_LARGE),
            ("\N{SNOWMAN}" * 4096, NONE),
            ("\N{SNOWMAN}" * 4097, OFFSET_METADATA_TOO_LARGE),
        ],
        ids=["null", "as much as may be", "too much", "as many characters", "too many characters"],
    )
    def test_metadata(self, wire: Wire, group: str, topic: str, metadata: str, expected: ErrorCode) -> None:
        assert commit(wire, group, (topic, 0, 1), metadata=metadata) == {(topic, 0): expected}

    def test_members_of_groups_that_do_not_exist(self, wire: Wire, group: str, topic: str) -> None:
        for version in (8, 9):
            refused = commit(wire, group, (topic, 0, 1), member_id="stranger", generation=1, version=version)
            assert refused == {(topic, 0): ILLEGAL_GENERATION if version < 9 else GROUP_ID_NOT_FOUND}

    def test_members_of_a_group(self, wire: Wire, group: str, topic: str) -> None:
        member = only_member(wire, group)
        member_id, generation = member.member_id, member.generation_id

        def outcome(member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
            answer = commit(wire, group, (topic, 0, 1), member_id=member_id, generation=generation, instance=instance)
            return answer[topic, 0]

        assert outcome("", -1) == UNKNOWN_MEMBER_ID
        assert outcome("stranger", generation) == UNKNOWN_MEMBER_ID
        assert outcome(member_id, generation, "nobody") == UNKNOWN_MEMBER_ID
        assert outcome(member_id, generation - 1) == ILLEGAL_GENERATION
        assert outcome(member_id, generation + 1) == ILLEGAL_GENERATION
        assert outcome(member_id, -1) == ILLEGAL_GENERATION
        assert outcome(member_id, generation) == NONE

    def test_deletion(self, wire: Wire, group: str, topic: str) -> None:
        assert error(wire, delete_offsets(group, (topic, 0))) == GROUP_ID_NOT_FOUND
        commit(wire, group, (topic, 0, 1))
        answer = wire.ask(delete_offsets(group, (topic, 0), (topic, 1), (topic, 9), (topic + "-missing", 0)))
        assert answer.error_code == NONE
        assert partition_errors(answer.topics) == {
            (topic, 0): NONE,
            (topic, 1): NONE,
            (topic, 9): UNKNOWN_TOPIC_OR_PARTITION,
            (topic + "-missing", 0): UNKNOWN_TOPIC_OR_PARTITION,
        }


class TestConsumerProtocol:
    @pytest.mark.parametrize(
        ("wrong", "expected"),
        [
            ({"rebalance_timeout_ms": -1}, INVALID_REQUEST),
            ({"subscribed_topic_names": None}, INVALID_REQUEST),
            ({"topic_partitions": None}, INVALID_REQUEST),
            ({"topic_partitions": [TopicPartitions(topic_id=UNKNOWN_ID, partitions=[0])]}, INVALID_REQUEST),
            ({"instance_id": ""}, INVALID_REQUEST),
            ({"rack_id": ""}, INVALID_REQUEST),
            ({"server_assignor": ""}, UNSUPPORTED_ASSIGNOR),
            ({"server_assignor": "nobody's"}, UNSUPPORTED_ASSIGNOR),
            ({"subscribed_topic_regex": "(("}, INVALID_REGULAR_EXPRESSION),
        ],
        ids=str,
    )
    def test_joining(self, wire: Wire, group: str, wrong: dict[str, Any], expected: ErrorCode) -> None:
        assert error(wire, consumer_join(group, "member", "topic", **wrong)) == expected
        (described,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
        assert described.error_code == GROUP_ID_NOT_FOUND

    def test_members_bring_their_id_since_version_1(self, wire: Wire, group: str, topic: str) -> None:
        assert error(wire, consumer_join(group, "", topic), 1) == INVALID_REQUEST
        assert error(wire, consumer_join(group, "", topic), 0) == NONE

    def test_strangers(self, wire: Wire, group: str, topic: str) -> None:
        assert error(wire, consumer_heartbeat(group, "stranger", 1)) == GROUP_ID_NOT_FOUND
        assert error(wire, consumer_heartbeat(group, "stranger", -1)) == GROUP_ID_NOT_FOUND
        wire.ask(consumer_join(group, "member", topic))
        assert error(wire, consumer_heartbeat(group, "stranger", 1)) == UNKNOWN_MEMBER_ID
        assert error(wire, consumer_heartbeat(group, "stranger", -1)) == UNKNOWN_MEMBER_ID
        assert error(wire, consumer_heartbeat(group, "member", -3)) == INVALID_REQUEST
        assert error(wire, consumer_heartbeat(group, "member", -2)) == INVALID_REQUEST  # only for static members

    def test_epochs(self, wire: Wire, group: str, topic: str) -> None:
        epoch = wire.ask(consumer_join(group, "member", topic)).member_epoch
        assert error(wire, consumer_heartbeat(group, "member", epoch)) == NONE
        assert error(wire, consumer_heartbeat(group, "member", epoch + 1)) == FENCED_MEMBER_EPOCH

        def outcome(epoch: int, member_id: str = "member", version: int = 9) -> ErrorCode:
            found = commit(wire, group, (topic, 0, 7), member_id=member_id, generation=epoch, version=version)
            return found[topic, 0]

        assert outcome(epoch) == NONE
        assert outcome(epoch + 1) == STALE_MEMBER_EPOCH
        assert outcome(epoch, "stranger") == UNKNOWN_MEMBER_ID
        assert committed(wire, group, (topic, 0), member_id="member", epoch=epoch).error_code == NONE
        assert committed(wire, group, (topic, 0), member_id="member", epoch=epoch + 1).error_code == STALE_MEMBER_EPOCH
        assert committed(wire, group, (topic, 0), member_id="stranger", epoch=epoch).error_code == UNKNOWN_MEMBER_ID
        answer = committed(wire, group, (topic, 0))
        assert answer.topics[0].partitions[0].committed_offset == 7

    def test_static_members(self, wire: Wire, group: str, topic: str) -> None:
        epoch = wire.ask(consumer_join(group, "first", topic, instance_id="static")).member_epoch
        assert error(wire, consumer_join(group, "second", topic, instance_id="static")) == UNRELEASED_INSTANCE_ID
        assert error(wire, consumer_heartbeat(group, "second", epoch, instance_id="static")) == FENCED_INSTANCE_ID
        assert error(wire, consumer_heartbeat(group, "first", -2, instance_id="static")) == NONE
        assert error(wire, consumer_join(group, "second", topic, instance_id="static")) == NONE
        assert error(wire, consumer_heartbeat(group, "first", epoch, instance_id="static")) == FENCED_INSTANCE_ID

    def test_requests_of_the_other_protocol(self, wire: Wire, group: str, topic: str) -> None:
        epoch = wire.ask(consumer_join(group, "member", topic)).member_epoch
        assert error(wire, heartbeat(group, "member", epoch)) == UNKNOWN_MEMBER_ID
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        assert error(wire, sync(group, "member", epoch, **named), 5) == UNKNOWN_MEMBER_ID
        assert error(wire, join(group, protocol_type="connect"), 9) == INCONSISTENT_GROUP_PROTOCOL
        assert describe(wire, group, 6).error_code == GROUP_ID_NOT_FOUND
        assert (describe(wire, group, 5).error_code, describe(wire, group, 5).group_state) == (NONE, "Dead")


class TestGroupsAsAWhole:
    def test_of_one_with_members_nothing_is_deleted(self, wire: Wire, group: str, topic: str) -> None:
        consumers, missing = group + "-consumers", group + "-missing"
        only_member(wire, group)
        wire.ask(consumer_join(consumers, "member", topic))
        answer = wire.ask(DeleteGroupsRequest(groups_names=[group, consumers, missing, group]))
        assert {each.group_id: each.error_code for each in answer.results} == {
            group: NON_EMPTY_GROUP,
            consumers: NON_EMPTY_GROUP,
            missing: GROUP_ID_NOT_FOUND,
        }
        deletion = wire.ask(delete_offsets(consumers, (topic, 0)))
        assert partition_errors(deletion.topics) == {(topic, 0): GROUP_SUBSCRIBED_TO_TOPIC}

    def test_descriptions(self, wire: Wire, group: str) -> None:
        assert (describe(wire, group, 5).error_code, describe(wire, group, 5).group_state) == (NONE, "Dead")
        assert describe(wire, group, 6).error_code == GROUP_ID_NOT_FOUND
        only_member(wire, group)
        (described,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
        assert described.error_code == GROUP_ID_NOT_FOUND

    @pytest.mark.parametrize(
        ("states", "types", "is_listed"),
        [
            ([], [], True),
            (["stable", "Nonsense"], [], True),
            (["Empty"], [], False),
            (["Nonsense"], [], False),
            ([], ["CLASSIC"], True),
            ([], ["consumer"], False),
            ([], ["nonsense"], False),
        ],
    )
    def test_listings(self, wire: Wire, group: str, states: list[str], types: list[str], is_listed: bool) -> None:
        only_member(wire, group)
        answer = wire.ask(ListGroupsRequest(states_filter=states, types_filter=types))
        assert answer.error_code == NONE
        found = [(each.group_state, each.group_type) for each in answer.groups if each.group_id == group]
        assert found == ([("Stable", "classic")] if is_listed else [])
