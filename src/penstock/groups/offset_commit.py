"""OffsetCommit and TxnOffsetCommit: who may commit offsets, and the records of a commit.

A member of the group's current generation or epoch may commit. A client without one may commit while the group is empty
(generation -1, which administrators and consumers with manually assigned partitions send). A classic group that waits
for its assignment refuses, because its members read nothing now. A transaction may commit for a group without naming a
member, because older producers send none.

A member of a consumer or streams group may commit with an epoch older than its own for partitions it has had since that
epoch: its commit may have crossed a heartbeat that raised its epoch.

The broker has found the topics in its metadata: each comes with name and id, and its partitions exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from penstock.coordinator.decision import Caller, CoordinatorRecord, Decision, Reply, Token
from penstock.groups.classic_group import ClassicGroup, ClassicState
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.records import offset_record
from penstock.groups.state import GroupState
from penstock.groups.streams_group import StreamsGroup
from penstock.groups.streams_member import StreamsMember
from penstock.groups.streams_tasks import Task
from penstock.groups.timers import TimerKey
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

COMMIT_KNOWS_GROUP_ID_NOT_FOUND_SINCE = 9
COMMIT_BY_MEMBER_EPOCH_SINCE = 9
TXN_COMMIT_KNOWS_NEW_ERRORS_SINCE = 6
# The latest time a record can hold; clients may ask to keep an offset for longer.
END_OF_TIME = (1 << 63) - 1

_Topic: TypeAlias = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
_Partition: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition

# Raises KafkaError for a partition that this member may not commit.
PartitionCheck: TypeAlias = Callable[[_Topic, int], None]


class _Member(NamedTuple):
    """The member that commits, as named in the request."""

    member_id: str
    instance_id: str | None
    generation: int
    is_transactional: bool
    api_version: int


class _Commit(NamedTuple):
    """The offsets to commit, from either kind of request."""

    group_id: str
    topics: Sequence[_Topic]
    now_ms: int
    expire_timestamp: int


# Each partition with its error code.
_Outcomes: TypeAlias = list[tuple[int, ErrorCode]]


class OffsetCommits:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    def commit(self, request: OffsetCommitRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        generation = request.generation_id_or_member_epoch
        member = _Member(request.member_id, request.group_instance_id, generation, False, caller.api_version)
        retention = request.retention_time_ms
        expire_timestamp = -1 if retention == -1 else min(max(0, now_ms + retention), END_OF_TIME)
        commit = _Commit(request.group_id, request.topics, now_ms, expire_timestamp)
        records, outcomes = self._decide(commit, member)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=error) for index, error in outcome
                ],
            )
            for topic, outcome in zip(request.topics, outcomes, strict=True)
        ]
        return Decision(records, [Reply(token, OffsetCommitResponse(topics=topics))])

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        """Decide a TxnOffsetCommit. The runtime appends the records as the producer's and replays them with its id."""
        generation = request.generation_id_or_member_epoch
        member = _Member(request.member_id, request.group_instance_id, generation, True, caller.api_version)
        commit = _Commit(request.group_id, request.topics, now_ms, -1)
        records, outcomes = self._decide(commit, member)
        topics = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
                    for index, error in outcome
                ],
            )
            for topic, outcome in zip(request.topics, outcomes, strict=True)
        ]
        return Decision(records, [Reply(token, TxnOffsetCommitResponse(topics=topics))])

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _decide(self, commit: _Commit, member: _Member) -> tuple[list[CoordinatorRecord], list[_Outcomes]]:
        """Return the records, and for each topic the error code of each partition.

        A member that may not commit commits nothing; errors of single partitions are reported anyway.
        """
        records: list[CoordinatorRecord] = []
        refusal = ErrorCode.NONE
        try:
            check = self._check(commit.group_id, member, commit.now_ms)
            for topic in commit.topics:
                for entry in topic.partitions:
                    if not self._is_too_large(entry):
                        if check is not None:
                            check(topic, entry.partition_index)
                        records.append(_record(commit, topic, entry))
        except KafkaError as error:
            records, refusal = [], error.code
        return records, [
            [
                (entry.partition_index, ErrorCode.OFFSET_METADATA_TOO_LARGE if self._is_too_large(entry) else refusal)
                for entry in topic.partitions
            ]
            for topic in commit.topics
        ]

    def _is_too_large(self, entry: _Partition) -> bool:
        return len(entry.committed_metadata or "") > self._state.settings.offset_metadata_max_bytes

    # -- members -------------------------------------------------------------------------------------------------------

    def _check(self, group_id: str, member: _Member, now_ms: int) -> PartitionCheck | None:
        """Raise KafkaError if this member may not commit at all."""
        if member.is_transactional and not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._state.group(group_id)
        if group_id in self._state.shares:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group is None:
            if member.generation < 0:
                # This group will only store offsets.
                return None
            knows_the_error = (
                TXN_COMMIT_KNOWS_NEW_ERRORS_SINCE if member.is_transactional else COMMIT_KNOWS_GROUP_ID_NOT_FOUND_SINCE
            )
            if member.api_version >= knows_the_error:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            return _check_modern(group, member)
        self._check_classic(group, member, now_ms)
        return None

    def _check_classic(self, group: ClassicGroup, member: _Member, now_ms: int) -> None:
        if member.generation < 0 and group.is_empty:
            return
        if member.generation >= 0 or member.member_id or member.instance_id is not None:
            group.check_member(member.member_id, member.instance_id)
            if member.generation != group.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not member.is_transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.is_transactional:
            return
        if group.state is ClassicState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        # A member that commits is alive.
        known = group.members[member.member_id]
        key = TimerKey("session", group.group_id, member.member_id)
        self._state.timers.set(key, now_ms + known.session_timeout_ms)


def _check_modern(group: ConsumerGroup | StreamsGroup, member: _Member) -> PartitionCheck | None:
    if member.generation < 0 and not group.members:
        return None
    if member.is_transactional and member.generation == -1 and not member.member_id and member.instance_id is None:
        return None
    known = group.member(member.member_id)
    is_classic = isinstance(known, ConsumerMember) and known.classic is not None
    if not member.is_transactional and not is_classic and member.api_version < COMMIT_BY_MEMBER_EPOCH_SINCE:
        kind = "consumer" if isinstance(group, ConsumerGroup) else "streams"
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"OffsetCommit version 9 or above must be used by members using the {kind} group protocol",
        )
    if member.generation == known.epoch:
        return None
    knows_new_errors = not member.is_transactional or member.api_version >= TXN_COMMIT_KNOWS_NEW_ERRORS_SINCE
    stale = ErrorCode.STALE_MEMBER_EPOCH if not is_classic and knows_new_errors else ErrorCode.ILLEGAL_GENERATION
    if member.generation > known.epoch:
        raise KafkaError(stale)

    def check(topic: _Topic, partition: int) -> None:
        if isinstance(known, ConsumerMember):
            since = _had_since(known, topic.topic_id, partition)
        else:
            reader = group.reader_of(topic.name) if isinstance(group, StreamsGroup) else None
            since = _ran_since(known, reader, partition)
        if since is None or member.generation < since:
            raise KafkaError(stale)

    return check


def _had_since(member: ConsumerMember, topic_id: Uuid, partition: int) -> int | None:
    since = member.assigned.get(topic_id, {}).get(partition)
    return member.revoking.get(topic_id, {}).get(partition) if since is None else since


def _ran_since(member: StreamsMember, subtopology: str | None, partition: int) -> int | None:
    """Return the epoch in which the member got the task that reads a partition."""
    if subtopology is None:
        return None
    task = Task(subtopology, partition)
    return member.assigned.active.get(task, member.revoking.active.get(task))


def _record(
    commit: _Commit,
    topic: _Topic,
    entry: _Partition,
) -> CoordinatorRecord:
    return offset_record(
        commit.group_id,
        topic.name,
        entry.partition_index,
        offset=entry.committed_offset,
        leader_epoch=entry.committed_leader_epoch,
        metadata=entry.committed_metadata,
        commit_timestamp=commit.now_ms,
        expire_timestamp=commit.expire_timestamp,
        topic_id=topic.topic_id,
    )
