"""Offsets of share groups: which the group has, moving them, and deleting them; also the deletion of the group.

The share coordinators hold the offsets. The group's records say which partitions have any there, so nothing is
forgotten: a partition becomes "deleting" before its state is deleted, and is removed after that is confirmed. Each of
these steps is an operation here; between them the runtime asks the share coordinators.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.coordinator.decision import CoordinatorRecord, Decision, Reply, Token
from penstock.groups.consumer_member import Target
from penstock.groups.draft import ShareDraft
from penstock.groups.share_group import ShareGroup, TopicState, with_partitions
from penstock.groups.share_heartbeat import Initialization, share_group_or_error
from penstock.groups.share_records import epoch_record
from penstock.groups.state import GroupState
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
    TopicResult,
)
from penstock.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from penstock.protocol.messages.delete_share_group_offsets import TopicResult as DeletedTopicResult


class AlterReply(NamedTuple):
    response: AlterShareGroupOffsetsResponse
    initialization: Initialization | None = None


class DeletePlan(NamedTuple):
    """The partitions whose state must be deleted by the share coordinators."""

    partitions: Target
    # For DeleteShareGroupOffsets: the results that are known already, or the error of the whole request.
    response: DeleteShareGroupOffsetsResponse


class InitializedPartitions(NamedTuple):
    partitions: Target


class ShareOffsets:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    def partitions_of(self, group_id: str, token: Token) -> Decision:
        """Tell which partitions the group has offsets of; none for a group that does not exist, as in Kafka."""
        group = self._state.shares.get(group_id)
        initialized = {} if group is None else group.initialized
        found = {topic_id: topic.partitions for topic_id, topic in initialized.items()}
        return Decision([], [Reply(token, InitializedPartitions(found))])

    # -- AlterShareGroupOffsets ----------------------------------------------------------------------------------------

    def alter(self, request: AlterShareGroupOffsetsRequest, token: Token) -> Decision:
        """Move the start offsets of a group without members; the group is created if it does not exist."""
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            draft = self._draft_of_empty(request.group_id)
        except KafkaError as error:
            refusal = AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
            return Decision([], [Reply(token, AlterReply(refusal))])
        response = AlterShareGroupOffsetsResponse()
        moved: dict[Uuid, TopicState] = {}
        offsets: dict[Uuid, dict[int, int]] = {}
        for topic in request.topics:
            topic_id = self._state.topics.topic_id(topic.topic_name)
            count = self._state.topics.partition_count(topic.topic_name)
            result = TopicResult(topic_name=topic.topic_name)
            response.responses.append(result)
            if topic_id is not None:
                result.topic_id = topic_id
            for part in topic.partitions:
                outcome = PartitionResult(partition_index=part.partition_index)
                result.partitions.append(outcome)
                if topic_id is not None and 0 <= part.partition_index < count:
                    offsets.setdefault(topic_id, {})[part.partition_index] = part.start_offset
                else:
                    outcome.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    outcome.error_message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.text
            if topic_id in offsets:
                moved[topic_id] = TopicState(topic.topic_name, frozenset(offsets[topic_id]))
        group = draft.group
        # The new epoch is that of the new state: a leader that still has the old one can no longer write.
        draft.emit(epoch_record(group.group_id, group.epoch + 1, group.metadata_hash))
        if moved:
            draft.emit(
                group.states_record(
                    initializing=with_partitions(group.initializing, moved),
                    deleting={topic_id: name for topic_id, name in group.deleting.items() if topic_id not in moved},
                )
            )
        initialization = Initialization(group.group_id, group.epoch, offsets) if offsets else None
        return Decision(draft.records, [Reply(token, AlterReply(response, initialization))])

    def _draft_of_empty(self, group_id: str) -> ShareDraft:
        if group_id not in self._state.shares and self._state.group(group_id) is None:
            return ShareDraft(ShareGroup(group_id))
        group = share_group_or_error(self._state, group_id)
        _check_empty(group)
        return ShareDraft.of(group)

    # -- deletion ------------------------------------------------------------------------------------------------------

    def begin_delete_offsets(self, request: DeleteShareGroupOffsetsRequest, token: Token) -> Decision:
        response = DeleteShareGroupOffsetsResponse()
        out = Decision([], [])
        partitions: dict[Uuid, frozenset[int]] = {}
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            group = share_group_or_error(self._state, request.group_id)
            _check_empty(group)
            for topic in request.topics:
                topic_id = self._state.topics.topic_id(topic.topic_name)
                if topic_id is None:
                    response.responses.append(_unknown(topic.topic_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.text))
                elif topic_id in group.initialized:
                    partitions[topic_id] = group.initialized[topic_id].partitions
                elif topic_id in group.deleting:
                    partitions[topic_id] = frozenset(range(self._state.topics.partition_count(topic.topic_name)))
                else:
                    response.responses.append(_unknown(topic.topic_name, "There is no offset information to delete."))
            if partitions:
                out.records.append(_with_deleting(group, partitions))
        except KafkaError as error:
            response = DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
        out.replies.append(Reply(token, DeletePlan(partitions, response)))
        return out

    def finish_delete_offsets(self, group_id: str, topics: Collection[Uuid]) -> list[CoordinatorRecord]:
        """The state of these topics is deleted."""
        group = self._state.shares.get(group_id)
        if group is None or not group.deleting.keys() & set(topics):
            return []
        return [
            group.states_record(deleting={each: name for each, name in group.deleting.items() if each not in topics})
        ]

    def begin_delete_group(self, group_id: str, token: Token) -> Decision:
        """Begin to delete a share group without members; an empty plan for any other group."""
        out = Decision([], [])
        partitions: dict[Uuid, frozenset[int]] = {}
        group = self._state.shares.get(group_id)
        if group is not None and group.is_empty:
            for topic_id in group.deleting:
                # An earlier deletion may have stopped half-way.
                name = self._state.topics.topic_name(topic_id)
                if name is not None:
                    partitions[topic_id] = frozenset(range(self._state.topics.partition_count(name)))
            for states in (group.initialized, group.initializing):
                for topic_id, topic in states.items():
                    partitions[topic_id] = partitions.get(topic_id, frozenset()) | topic.partitions
            if partitions:
                out.records.append(_with_deleting(group, partitions, keep_others=False))
        out.replies.append(Reply(token, DeletePlan(partitions, DeleteShareGroupOffsetsResponse())))
        return out

    def topics_deleted(self, topic_ids: Collection[Uuid]) -> list[CoordinatorRecord]:
        """Forget deleted topics. The share coordinators delete their state by themselves."""
        found = []
        for group in self._state.shares.values():
            known: tuple[Mapping[Uuid, object], ...] = (group.initializing, group.initialized, group.deleting)
            if any(not states.keys().isdisjoint(topic_ids) for states in known):
                found.append(
                    group.states_record(
                        initializing={
                            each: topic for each, topic in group.initializing.items() if each not in topic_ids
                        },
                        initialized={each: topic for each, topic in group.initialized.items() if each not in topic_ids},
                        deleting={each: name for each, name in group.deleting.items() if each not in topic_ids},
                    )
                )
        return found

    def gone_topics(self) -> set[Uuid]:
        """Topics that were deleted while there was no coordinator to notice."""
        return {
            topic_id
            for group in self._state.shares.values()
            for topic_id in (*group.initializing, *group.initialized, *group.deleting)
            if self._state.topics.topic_name(topic_id) is None
        }


def _check_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def _unknown(topic_name: str, message: str) -> DeletedTopicResult:
    return DeletedTopicResult(
        topic_name=topic_name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=message
    )


def _with_deleting(group: ShareGroup, topics: Mapping[Uuid, object], *, keep_others: bool = True) -> CoordinatorRecord:
    """Return the record in which these topics are being deleted; `keep_others`: the others stay as they are."""
    names = {topic_id: topic.name for topic_id, topic in (*group.initializing.items(), *group.initialized.items())}
    deleting = {
        **group.deleting,
        **{topic_id: names.get(topic_id, "") or group.deleting[topic_id] for topic_id in topics},
    }
    if not keep_others:
        return group.states_record(initializing={}, initialized={}, deleting=deleting)
    return group.states_record(
        initialized={topic_id: topic for topic_id, topic in group.initialized.items() if topic_id not in topics},
        deleting=deleting,
    )
