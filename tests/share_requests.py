"""Good and bad requests of share groups, in one order: each changes what the next ones find.

A request is made for one cluster (`Side`), because topic ids differ. `SCRIPT` has them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    write_share_group_state,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class Side(Protocol):
    def topic_id(self, name: str) -> bytes: ...


class Step(NamedTuple):
    name: str
    request: Callable[[Side], Message]
    connection: str = "first"


SCRIPT: list[Step] = []
UNKNOWN_ID = b"\x07" * 16


def step(name: str, request: Message | Callable[[Side], Message], connection: str = "first") -> None:
    SCRIPT.append(Step(name, (lambda side: request) if isinstance(request, Message) else request, connection))


# -- members ----------------------------------------------------------------------------------------------------------


def beat(group: str, member: str, epoch: int, topics: list[str] | None = None, rack: str | None = None) -> Message:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, rack_id=rack, subscribed_topic_names=topics
    )


step("join without a subscription", beat("g", "m1", 0))
step("join with an empty subscription", beat("g", "m1", 0, []))
step("join a group without a name", beat("", "m1", 0, ["a"]))
step("join a group of blanks", beat("  ", "m1", 0, ["a"]))
step("join without a member id", beat("g", "", 0, ["a"]))
step("join with a long member id", beat("long", "m" * 200, 0, ["a"]))
step("join with an empty rack", beat("g", "m1", 0, ["a"], rack=""))
step("an epoch below -1", beat("g", "m1", -2))
step("a heartbeat of a group that does not exist", beat("nobody", "m1", 3))
step("leave a group that does not exist", beat("nobody", "m1", -1))
step("a heartbeat of a member that does not exist", beat("long", "m9", 3))
step("leave as a member that does not exist", beat("long", "m9", -1))
step("a member of the wrong epoch", beat("long", "m" * 200, 99))
step("join a consumer group", beat("consumers", "m1", 0, ["a"]))
step("join a classic group", beat("classic", "m1", 0, ["a"]))
step("subscribe to nothing later", beat("long", "m" * 200, 1, []))
step("leave", beat("long", "m" * 200, -1))
step("leave twice", beat("long", "m" * 200, -1))

# -- descriptions -----------------------------------------------------------------------------------------------------


def describe(*groups: str, operations: bool = False) -> Message:
    return ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)


step("describe a group without members", describe("long"))
step("describe a group that does not exist", describe("nobody"))
step("describe a consumer group", describe("consumers"))
step("describe a classic group", describe("classic"))
step("describe a group without a name", describe(""))
step("describe nothing", describe())
step("describe several", describe("nobody", "consumers"))
step("describe twice", describe("nobody", "nobody"))
step("describe with operations", describe("long", operations=True))
step("list share groups that are empty", ListGroupsRequest(types_filter=["share"], states_filter=["empty"]))
step("list groups of an unknown type", ListGroupsRequest(types_filter=["sheer"]))

# -- offsets ----------------------------------------------------------------------------------------------------------


def alter(group: str, **topics: dict[int, int]) -> Message:
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            alter_share_group_offsets.Topic(
                topic_name=name,
                partitions=[
                    alter_share_group_offsets.Partition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


def where(*groups: tuple[str, dict[str, list[int]] | None]) -> Message:
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
        groups=[
            describe_share_group_offsets.Group(
                group_id=group,
                topics=None
                if topics is None
                else [
                    describe_share_group_offsets.Topic(topic_name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            )
            for group, topics in groups
        ]
    )


def forget(group: str, *topics: str) -> Message:
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[delete_share_group_offsets.Topic(topic_name=name) for name in topics]
    )


step("offsets of a group that does not exist", where(("nobody", None)))
step("offsets of it in a topic", where(("nobody", {"a": [0, 1]})))
step("offsets of a consumer group", where(("consumers", None)))
step("offsets of a classic group", where(("classic", None)))
step("offsets of a group without a name", where(("", None)))
step("offsets of no group", where())
step("set offsets of a group that is new", alter("h", a={0: 0, 1: 0}))
step("set them again", alter("h", a={0: 0}))
step("set offsets in a topic that does not exist", alter("h", zzz={0: 0}))
step("set offsets in a partition that does not exist", alter("h", a={7: 0}))
step("set offsets in partitions of which one exists", alter("h", a={1: 0, 7: 0}))
step("set no offsets", alter("h"))
step("set offsets of a group without a name", alter("", a={0: 0}))
step("set offsets of a consumer group", alter("consumers", a={0: 0}))
step("set offsets of a classic group", alter("classic", a={0: 0}))
step("offsets that were set", where(("h", None)))
step("offsets of one partition", where(("h", {"a": [1]})))
step("offsets of a partition that does not exist", where(("h", {"a": [7]})))
step("offsets of a topic that does not exist", where(("h", {"zzz": [0]})))
step("offsets of a topic that it has not read", where(("h", {"b": [0]})))
step("offsets of two groups", where(("h", {"a": [0]}), ("nobody", {"a": [0]})))
step("offsets in no topic", where(("h", {})))
step("set offsets to delete", alter("k", a={0: 5}, b={0: 1}))
step("forget a topic", forget("k", "b"))
step("forget it again", forget("k", "b"))
step("forget a topic that does not exist", forget("k", "zzz"))
step("forget topics of which one exists", forget("k", "a", "zzz"))
step("forget nothing", forget("k"))
step("forget in a group that does not exist", forget("nobody", "a"))
step("forget in a consumer group", forget("consumers", "a"))
step("forget in a group without a name", forget("", "a"))
step("delete a share group", DeleteGroupsRequest(groups_names=["k"]))
step("delete it again", DeleteGroupsRequest(groups_names=["k"]))
step("offsets of a group that was deleted", where(("k", None)))

# -- records ----------------------------------------------------------------------------------------------------------

Acks = Sequence[tuple[int, int, Sequence[int]]]
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def fetch(
    epoch: int,
    *partitions: int,
    topic: str = "a",
    group: str | None = "h",
    member: str | None = "w1",
    acks: dict[int, Acks] | None = None,
    forgotten: Iterable[int] = (),
    **options: Any,
) -> Callable[[Side], Message]:
    given = acks or {}
    options = {"max_wait_ms": 500, "min_bytes": 1, "max_records": 500, "batch_size": 500} | options

    def request(side: Side) -> Message:
        parts = [
            share_fetch.FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    share_fetch.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=list(types)
                    )
                    for first, last, types in given.get(index, ())
                ],
            )
            for index in sorted({*partitions, *given})
        ]
        topic_id = side.topic_id(topic)
        return share_fetch.ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=parts)] if parts else [],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=[index]) for index in forgotten
            ],
            **options,
        )

    return request


def acknowledge(
    epoch: int,
    *acks: tuple[int, int, Sequence[int]],
    partition: int = 0,
    topic: str = "a",
    group: str | None = "h",
    member: str | None = "w1",
    renews: bool = False,
) -> Callable[[Side], Message]:
    def request(side: Side) -> Message:
        batches = [
            share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in acks
        ]
        part = share_acknowledge.AcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=side.topic_id(topic), partitions=[part])],
        )

    return request


step("fetch without a group", fetch(0, 0, group=None))
step("fetch with an empty group", fetch(0, 0, group=""))
step("fetch without a member", fetch(0, 0, member=None))
step("fetch with an empty member", fetch(0, 0, member=""))
step("fetch with a member id of 37 letters", fetch(0, 0, member="m" * 37))
step("fetch in a session that does not exist", fetch(1, 0))
step("close a session that does not exist", fetch(-1))
step("an epoch below -1 in a fetch", fetch(-2, 0))
step("acknowledge in the first fetch", fetch(0, acks={0: [(0, 1, [ACCEPT])]}))
step("acknowledge in a session that does not exist", acknowledge(1, (0, 1, [ACCEPT])))
step("acknowledge with epoch 0", acknowledge(0, (0, 1, [ACCEPT])))
step("acknowledge and close without a session", acknowledge(-1, (0, 1, [ACCEPT])))
step("acknowledge without a member", acknowledge(1, (0, 1, [ACCEPT]), member=None))
step("acknowledge with an empty member", acknowledge(1, (0, 1, [ACCEPT]), member=""))
step("acknowledge without a group", acknowledge(1, (0, 1, [ACCEPT]), group=None))
step("fetch at most 5 records", fetch(0, 0, max_records=5, batch_size=5))
step("fetch again, with the same epoch", fetch(0, 0, max_records=5, batch_size=5))
step("fetch in the wrong epoch", fetch(9, 0))
step("accept in the wrong epoch", acknowledge(9, (0, 0, [ACCEPT])))
step("accept one", acknowledge(1, (0, 0, [ACCEPT])))
step("accept it again", acknowledge(2, (0, 0, [ACCEPT])))
step("accept one that is not acquired", acknowledge(3, (18, 18, [ACCEPT])))
step("accept up to one that is not acquired", acknowledge(4, (4, 5, [ACCEPT])))
step("accept past the end", acknowledge(5, (1000, 1001, [ACCEPT])))
step("accept from the last to the first", acknowledge(6, (3, 1, [ACCEPT])))
step("accept a negative offset", acknowledge(7, (-1, 1, [ACCEPT])))
step("accept out of order", acknowledge(8, (3, 3, [ACCEPT]), (1, 1, [ACCEPT])))
step("accept what overlaps", acknowledge(9, (1, 2, [ACCEPT]), (2, 3, [ACCEPT])))
step("no type", acknowledge(10, (1, 2, [])))
step("too few types", acknowledge(11, (1, 3, [ACCEPT, ACCEPT])))
step("too many types", acknowledge(12, (1, 2, [ACCEPT, ACCEPT, ACCEPT])))
step("an unknown type", acknowledge(13, (1, 1, [9])))
step("a negative type", acknowledge(14, (1, 1, [-1])))
step("renew without saying so", acknowledge(15, (1, 1, [RENEW])))
step("renew", acknowledge(15, (1, 1, [RENEW]), renews=True))
step("accept and renew", acknowledge(16, (1, 1, [RENEW]), (2, 2, [ACCEPT]), renews=True))
step("accept in a topic that does not exist", acknowledge(17, (1, 1, [ACCEPT]), topic="zzz"))
step("accept in a partition that does not exist", acknowledge(18, (1, 1, [ACCEPT]), partition=7))
step("accept in a partition that is not in the session", acknowledge(19, (1, 1, [ACCEPT]), partition=1))
step("say nothing of a partition", acknowledge(20))
step("a type for each offset", acknowledge(21, (1, 4, [RELEASE, 0, REJECT, ACCEPT])))
step("fetch what was released", fetch(22, max_records=1, batch_size=1, share_acquire_mode=1))
step("another member, in the same connection", fetch(0, 0, member="w2", max_records=3, batch_size=3))
step("another member, in another connection", fetch(0, 0, member="w3", max_records=3, batch_size=3), "second")
step("accept what another member has", acknowledge(23, (5, 5, [ACCEPT])))
step("a partition that does not exist", fetch(24, 7, max_records=2))
step("forget a partition", fetch(25, forgotten=[7], max_records=1))
step("forget a partition that is not in the session", fetch(26, forgotten=[7], max_records=1))
step("a topic that does not exist", fetch(0, 0, topic="zzz", member="w4"), "third")
step("a topic that the group has not read", fetch(0, 0, topic="b", member="w5"), "third")
step("an unknown mode", fetch(0, 0, member="w6", max_records=2, share_acquire_mode=7), "third")
step("no bytes", fetch(0, 0, member="w7", max_bytes=0), "third")
step("negative bytes", fetch(0, 0, member="w8", max_bytes=-1, min_bytes=-1), "third")
step("no batch size", fetch(0, 0, member="w9", batch_size=0, max_records=1), "third")
step("no records at all", fetch(27, max_records=0))
step("a negative number of records", fetch(28, max_records=-1))
step("a strict limit", fetch(29, max_records=2, share_acquire_mode=1))
step("a renewal that fetches", fetch(30, max_records=2, is_renew_ack=True, acks={0: [(1, 1, [RENEW])]}))
step(
    "a renewal that fetches nothing",
    fetch(
        30,
        max_records=0,
        batch_size=0,
        max_bytes=0,
        min_bytes=0,
        max_wait_ms=0,
        is_renew_ack=True,
        acks={0: [(1, 1, [RENEW])]},
    ),
)
step("accept in a fetch", fetch(31, acks={0: [(1, 1, [ACCEPT])]}, max_records=1))
step("accept in a fetch what is accepted", fetch(32, acks={0: [(1, 1, [ACCEPT])]}, max_records=1))
step("add a partition and close", fetch(-1, 1))
step("close", fetch(-1))
step("close twice", fetch(-1))
step("accept and close", acknowledge(-1, (5, 5, [ACCEPT]), member="w2"))
step("close the session of another connection", fetch(-1, member="w3"), "first")
step("offsets after all of that", where(("h", {"a": [0]})))

# -- state ------------------------------------------------------------------------------------------------------------


def initialize(partition: int, state_epoch: int, start: int, topic: str = "b", group: str = "s") -> Any:
    part = initialize_share_group_state.Partition(partition=partition, state_epoch=state_epoch, start_offset=start)
    return lambda side: initialize_share_group_state.InitializeShareGroupStateRequest(
        group_id=group,
        topics=[initialize_share_group_state.InitializeStateData(topic_id=side.topic_id(topic), partitions=[part])],
    )


def read(partition: int, leader_epoch: int, topic: str = "b", group: str = "s") -> Any:
    part = read_share_group_state.Partition(partition=partition, leader_epoch=leader_epoch)
    return lambda side: read_share_group_state.ReadShareGroupStateRequest(
        group_id=group,
        topics=[read_share_group_state.ReadStateData(topic_id=side.topic_id(topic), partitions=[part])],
    )


def summarize(partition: int, leader_epoch: int, topic: str = "b", group: str = "s") -> Any:
    part = read_share_group_state_summary.Partition(partition=partition, leader_epoch=leader_epoch)
    data = read_share_group_state_summary.ReadStateSummaryData
    return lambda side: read_share_group_state_summary.ReadShareGroupStateSummaryRequest(
        group_id=group, topics=[data(topic_id=side.topic_id(topic), partitions=[part])]
    )


def write(
    partition: int,
    epochs: tuple[int, int],
    start: int,
    *batches: tuple[int, int, int, int],
    complete: int = 0,
    topic: str = "b",
    group: str = "s",
) -> Any:
    state_epoch, leader_epoch = epochs
    part = write_share_group_state.Partition(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=[
            write_share_group_state.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in batches
        ],
    )
    return lambda side: write_share_group_state.WriteShareGroupStateRequest(
        group_id=group,
        topics=[write_share_group_state.WriteStateData(topic_id=side.topic_id(topic), partitions=[part])],
    )


def delete(partition: int, topic: str = "b", group: str = "s") -> Any:
    part = delete_share_group_state.Partition(partition=partition)
    return lambda side: delete_share_group_state.DeleteShareGroupStateRequest(
        group_id=group,
        topics=[delete_share_group_state.DeleteStateData(topic_id=side.topic_id(topic), partitions=[part])],
    )


step("read state that does not exist", read(0, 1))
step("summarize state that does not exist", summarize(0, 1))
step("write state that does not exist", write(0, (1, 1), 3))
step("delete state that does not exist", delete(0))
step("initialize", initialize(0, 2, 3))
step("initialize again", initialize(0, 2, 3))
step("initialize with an older epoch", initialize(0, 1, 9))
step("initialize in a topic that does not exist", initialize(0, 1, 0, topic="zzz"))
step("initialize in no topic", initialize(0, 1, 0, topic="zero"))
step("initialize a partition that does not exist", initialize(7, 1, 0))
step("initialize a negative partition", initialize(-1, 1, 0))
step("initialize a group without a name", initialize(0, 1, 0, group=""))
step("read", read(0, 5))
step("read with an older leader epoch", read(0, 4))
step("read a partition that does not exist", read(7, 1))
step("read a negative partition", read(-1, 1))
step("write", write(0, (2, 5), 3, (3, 4, 2, 1), (5, 9, 0, 2), complete=2))
step("write what overlaps", write(0, (2, 5), 3, (4, 6, 4, 3), complete=3))
step("read what was written", read(0, 5))
step("write with an older leader epoch", write(0, (2, 4), 3))
step("write with a newer leader epoch", write(0, (2, 6), 3))
step("write with an older state epoch", write(0, (1, 6), 3))
step("write with a newer state epoch", write(0, (9, 6), 3))
step("write without a start", write(0, (2, 6), -1, (7, 7, 2, 1)))
step("write from the last to the first", write(0, (2, 6), 3, (9, 7, 2, 1)))
step("move the start", write(0, (2, 6), 6, complete=1))
step("read after the start has moved", read(0, 6))
step("summarize", summarize(0, 6))
step("summarize with an older leader epoch", summarize(0, 1))
step("delete", delete(0))
step("delete twice", delete(0))
step("read what was deleted", read(0, 6))
