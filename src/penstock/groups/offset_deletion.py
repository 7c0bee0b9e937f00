"""Deletion of offsets: on request, with their topic, with their group, or because they have expired.

An offset expires `offsets.retention.minutes` after its group became empty, if the group ever had consumers as members;
otherwise after it was committed. It does not expire while consumers are subscribed to its topic, or while a transaction
has a pending offset for the same partition. The group is deleted with the last offset of an empty group.

Topics may be deleted while a coordinator is being replaced, and the new one is not notified: the search for expired
offsets finds those offsets, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from penstock.coordinator.decision import CoordinatorRecord, Decision
from penstock.groups.classic_group import ClassicGroup, ClassicState
from penstock.groups.offset_store import CommittedOffset
from penstock.groups.records import classic_group_record, offset_tombstone
from penstock.groups.state import GroupState, OffsetGroup
from penstock.groups.topics import DeletedTopic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID, TopicPartition, Uuid
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

# Offsets to check in one step: a few milliseconds of work.
_SLICE: Final = 1000


class OffsetDeletion:
    def __init__(self, state: GroupState) -> None:
        self._state = state
        # Groups that the search for expired offsets has still to check.
        self._unchecked: list[str] = []
        # Deleted topics, each with the groups whose offsets are still to be deleted.
        self._of_deleted: deque[tuple[dict[str, Uuid], list[str]]] = deque()

    # -- on request ----------------------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest, records: list[CoordinatorRecord]) -> OffsetDeleteResponse:
        """Answer OffsetDelete; raise KafkaError if the group does not exist or its offsets may not be deleted."""
        group = self._state.group_or_error(request.group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        committed = self._state.offsets.of_group(request.group_id)
        pending = self._state.offsets.pending_of(request.group_id)
        response = OffsetDeleteResponse()
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            outcome = OffsetDeleteResponseTopic(name=topic.name)
            response.topics.append(outcome)
            for entry in topic.partitions:
                index = entry.partition_index
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
                outcome.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
                exists = index in committed.get(topic.name, {}) or TopicPartition(topic.name, index) in pending
                if exists and not subscribed:
                    records.append(offset_tombstone(request.group_id, topic.name, index))
        return response

    # -- with the group or topic ---------------------------------------------------------------------------------------

    def delete_all(self, group_id: str, records: list[CoordinatorRecord]) -> None:
        committed = self._state.offsets.of_group(group_id)
        for topic, partitions in committed.items():
            records.extend(offset_tombstone(group_id, topic, index) for index in partitions)
        for topic, index in self._state.offsets.pending_of(group_id):
            if index not in committed.get(topic, {}):
                records.append(offset_tombstone(group_id, topic, index))

    def topics_deleted(self, deleted: Collection[DeletedTopic]) -> None:
        """Remember deleted topics; `delete_of_topics` deletes their offsets."""
        ids = {topic.name: topic.topic_id for topic in deleted}
        self._of_deleted.append((ids, sorted(self._state.offsets.groups(), reverse=True)))

    def delete_of_topics(self, records: list[CoordinatorRecord]) -> bool:
        """Delete the offsets of deleted topics in some of the groups; False if there are more."""
        budget = _SLICE
        while self._of_deleted and budget > 0:
            ids, groups = self._of_deleted[0]
            while groups and budget > 0:
                gone = self._topic_tombstones(groups.pop(), ids)
                records.extend(gone)
                budget -= 1 + len(gone)
            if not groups:
                self._of_deleted.popleft()
        return not self._of_deleted

    def _topic_tombstones(self, group_id: str, ids: Mapping[str, Uuid]) -> list[CoordinatorRecord]:
        """Return tombstones. Offsets of a new topic with the same name and another id stay."""
        gone: set[tuple[str, int]] = set()
        committed = self._state.offsets.of_group(group_id)
        for name in ids.keys() & committed.keys():
            mine = (ZERO_UUID, ids[name])
            gone.update((name, index) for index, offset in committed[name].items() if offset.topic_id in mine)
        for (name, index), offset in self._state.offsets.pending_offsets_of(group_id):
            if name in ids and offset.topic_id in (ZERO_UUID, ids[name]):
                gone.add((name, index))
        return [offset_tombstone(group_id, name, index) for name, index in sorted(gone)]

    # -- expiry --------------------------------------------------------------------------------------------------------

    @property
    def is_searching(self) -> bool:
        return bool(self._unchecked)

    def begin_search(self) -> None:
        """Start a search over all groups that exist now."""
        groups = {*self._state.classic, *self._state.consumer, *self._state.streams}
        self._unchecked = sorted(groups, reverse=True)

    def search(self, now_ms: int, out: Decision) -> bool:
        """Search some of the groups; False if there are more."""
        budget = _SLICE
        while self._unchecked and budget > 0:
            group_id = self._unchecked.pop()
            group = self._state.group(group_id)
            if group is not None:
                budget -= 1 + self._expire(group, now_ms, out.records)
        return not self._unchecked

    def _expire(self, group: OffsetGroup, now_ms: int, records: list[CoordinatorRecord]) -> int:
        """Delete expired offsets; return how many offsets were checked."""
        group_id = group.group_id
        committed = self._state.offsets.of_group(group_id)
        pending = self._state.offsets.pending_of(group_id)
        looked_at = 0
        survivors = bool(pending)
        for topic, partitions in committed.items():
            keeps_all = group.is_subscribed_to(topic)
            topic_id = self._state.topics.topic_id(topic)
            for index, offset in partitions.items():
                looked_at += 1
                is_gone = topic_id is None or offset.topic_id not in (ZERO_UUID, topic_id)
                is_due = is_gone or (not keeps_all and self._is_old(group, offset, now_ms))
                if not is_due or TopicPartition(topic, index) in pending:
                    survivors = True
                else:
                    records.append(offset_tombstone(group_id, topic, index))
        if not survivors:
            self._delete_if_unused(group, records)
        return looked_at

    def _is_old(self, group: OffsetGroup, offset: CommittedOffset, now_ms: int) -> bool:
        since_ms = offset.commit_timestamp
        if isinstance(group, ClassicGroup) and group.protocol_type is not None:
            if group.is_empty:
                if group.state_timestamp != -1:
                    since_ms = group.state_timestamp
            elif group.state is not ClassicState.STABLE or group.subscribed_topics is None:
                return False
        if offset.expire_timestamp != -1:
            return now_ms >= offset.expire_timestamp
        return now_ms - since_ms >= self._state.settings.offsets_retention_ms

    def _delete_if_unused(self, group: OffsetGroup, records: list[CoordinatorRecord]) -> None:
        if not isinstance(group, ClassicGroup):
            if group.is_empty:
                records.extend(group.tombstones())
        elif group.is_empty and not group.pending_joins:
            records.append(classic_group_record(group.group_id, None))
