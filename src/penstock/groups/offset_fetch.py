"""OffsetFetch: the committed offsets of a group.

An unknown group or partition is no error: its offset is -1. With RequireStable, a partition with a pending
transactional offset gets UNSTABLE_OFFSET_COMMIT, and the client asks again. An offset of a topic that was deleted and
created again under the same name does not belong to the new topic: from version 10 on, where clients use topic ids, it
is not returned.
"""

from __future__ import annotations

from penstock.coordinator.decision import Caller
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.offset_store import CommittedOffset
from penstock.groups.state import GroupState
from penstock.groups.streams_group import StreamsGroup
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID, TopicPartition, Uuid
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

BATCHED_SINCE = 8
GROUP_ERROR_SINCE = 2
BY_TOPIC_ID_SINCE = 10


class OffsetFetches:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    def fetch(self, request: OffsetFetchRequest, caller: Caller) -> OffsetFetchResponse:
        """Return the offsets of all groups in the request, which must all belong to this partition."""
        if caller.api_version >= BATCHED_SINCE:
            return OffsetFetchResponse(
                groups=[self._group(group, request.require_stable, caller.api_version) for group in request.groups]
            )
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in request.topics
            ]
        group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
        return single_group(self._group(group, request.require_stable, caller.api_version), caller.api_version)

    def _group(self, request: OffsetFetchRequestGroup, require_stable: bool, version: int) -> OffsetFetchResponseGroup:
        group = self._state.group(request.group_id)
        if request.group_id in self._state.shares:
            return group_error(request, ErrorCode.GROUP_ID_NOT_FOUND, version)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            try:
                _check_member(group, request)
            except KafkaError as error:
                return group_error(request, error.code, version)
        if request.topics is None:
            topics = self._all_topics(request.group_id, require_stable, version)
        else:
            topics = [self._topic(request.group_id, topic, require_stable, version) for topic in request.topics]
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def _topic(
        self, group_id: str, topic: OffsetFetchRequestTopics, require_stable: bool, version: int
    ) -> OffsetFetchResponseTopics:
        response = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
        name, topic_id = topic.name, ZERO_UUID
        if version >= BY_TOPIC_ID_SINCE:
            topic_id = topic.topic_id
            known = self._state.topics.topic_name(topic_id) if topic_id != ZERO_UUID else None
            if known is None:
                response.partitions = [_failed(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
                return response
            name = response.name = known
        committed = self._state.offsets.of_group(group_id).get(name, {})
        pending = self._state.offsets.pending_of(group_id) if require_stable else {}
        for index in topic.partition_indexes:
            if TopicPartition(name, index) in pending:
                response.partitions.append(_failed(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                response.partitions.append(_partition(index, committed.get(index), topic_id))
        return response

    def _all_topics(self, group_id: str, require_stable: bool, version: int) -> list[OffsetFetchResponseTopics]:
        pending = self._state.offsets.pending_of(group_id) if require_stable else {}
        found = []
        for name, partitions in self._state.offsets.of_group(group_id).items():
            topic_id = self._state.topics.topic_id(name) or ZERO_UUID
            if version >= BY_TOPIC_ID_SINCE and topic_id == ZERO_UUID:
                # The answer could not identify the topic.
                continue
            response = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
            for index, offset in partitions.items():
                if TopicPartition(name, index) in pending:
                    response.partitions.append(_failed(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                else:
                    response.partitions.append(_partition(index, offset, ZERO_UUID))
            found.append(response)
        return found


def _check_member(group: ConsumerGroup | StreamsGroup, request: OffsetFetchRequestGroup) -> None:
    """Check the epoch.

    A member that names itself must be up to date, because it is about to read from these offsets.
    """
    if request.member_id is None and request.member_epoch < 0:
        return
    member = group.member(request.member_id or "")
    if request.member_epoch != member.epoch:
        is_classic = isinstance(member, ConsumerMember) and member.classic is not None
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH)


def _partition(index: int, offset: CommittedOffset | None, topic_id: Uuid) -> OffsetFetchResponsePartitions:
    if offset is None or (ZERO_UUID not in (offset.topic_id, topic_id) and offset.topic_id != topic_id):
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _failed(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)


def group_error(request: OffsetFetchRequestGroup, error: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """Make an error for the whole group; also with each partition, for versions that have no field for group errors."""
    if version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[_failed(index, error) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics, error_code=error)


def single_group(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    """Convert the answer of one group to the format before version 8."""
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=entry.partition_index,
                    committed_offset=entry.committed_offset,
                    committed_leader_epoch=entry.committed_leader_epoch,
                    metadata=entry.metadata,
                    error_code=entry.error_code,
                )
                for entry in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    error = group.error_code if version >= GROUP_ERROR_SINCE else ErrorCode.NONE
    return OffsetFetchResponse(topics=topics, error_code=error)
