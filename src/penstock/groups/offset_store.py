"""Committed offsets, and offsets that are pending until their transaction ends.

An offset committed in a transaction is pending until its producer's marker: then it becomes the group's offset or is
dropped. Where plain and transactional commits mix, the one appended last wins, not the one that became visible last; so
each offset keeps its order (`sequence`: compaction removes records but never reorders them). A tombstone also removes
the pending offsets of its partition, since deleting offsets means deleting all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from penstock.model.ids import TopicPartition, Uuid
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.group_records import LegacyOffsetCommitValue, OffsetCommitValue


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    # -1, unless an older client set how long to keep this offset.
    expire_timestamp: int
    # ZERO_UUID if a coordinator without topic ids wrote it.
    topic_id: Uuid
    sequence: int

    @classmethod
    def of(cls, value: OffsetCommitValue | LegacyOffsetCommitValue, sequence: int) -> CommittedOffset:
        if isinstance(value, LegacyOffsetCommitValue):
            return cls(value.offset, -1, value.metadata, value.commit_timestamp, -1, bytes(16), sequence)
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            sequence,
        )


Offsets: TypeAlias = dict[str, dict[int, CommittedOffset]]


@owned_by_loop()
class OffsetStore:
    def __init__(self) -> None:
        self._by_group: dict[str, Offsets] = {}
        self.pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        # The producers that have a pending offset for a partition, by group.
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        self.sequence = 0
        # The number of removals.
        self.removals = 0

    # -- queries -------------------------------------------------------------------------------------------------------

    def of_group(self, group_id: str) -> Offsets:
        """Return a group's offsets by topic and partition."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def pending_of(self, group_id: str) -> dict[TopicPartition, set[int]]:
        """Return the partitions with pending transactional offsets, and the producers that have them."""
        return self._open.get(group_id, {})

    def groups(self) -> Iterator[str]:
        yield from self._by_group
        yield from (group_id for group_id in self._open if group_id not in self._by_group)

    def pending_offsets_of(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for where, producers in self.pending_of(group_id).items():
            for producer_id in producers:
                yield where, self.pending[producer_id][group_id][where]

    def durable(self) -> object:
        """Return all state that comes from records, for comparison."""
        return self._by_group, self.pending, self._open

    # -- changes -------------------------------------------------------------------------------------------------------

    def replay(
        self,
        group_id: str,
        topic: str,
        partition: int,
        value: OffsetCommitValue | LegacyOffsetCommitValue | None,
        producer_id: int,
    ) -> None:
        sequence = self.next_sequence()
        where = TopicPartition(topic, partition)
        if value is None:
            self._remove(group_id, where)
        elif producer_id == -1:
            self._put(group_id, where, CommittedOffset.of(value, sequence))
        else:
            pending = self.pending.setdefault(producer_id, {}).setdefault(group_id, {})
            pending[where] = CommittedOffset.of(value, sequence)
            self._open.setdefault(group_id, {}).setdefault(where, set()).add(producer_id)

    def partitions_of(self, group_id: str, topic: str) -> dict[int, CommittedOffset]:
        """Return the writable offsets of a topic; valid until something is removed."""
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        return partitions

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        for group_id, offsets in self.pending.pop(producer_id, {}).items():
            for where, offset in offsets.items():
                self._close(group_id, where, producer_id)
                if committed:
                    existing = self.get(group_id, where.topic, where.partition)
                    if existing is None or existing.sequence < offset.sequence:
                        self._put(group_id, where, offset)

    def _put(self, group_id: str, where: TopicPartition, offset: CommittedOffset) -> None:
        self.partitions_of(group_id, where.topic)[where.partition] = offset

    def _remove(self, group_id: str, where: TopicPartition) -> None:
        self.removals += 1
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(where.topic, {})
        if partitions.pop(where.partition, None) is not None and not partitions:
            del topics[where.topic]
            if not topics:
                del self._by_group[group_id]
        for producer_id in list(self.pending_of(group_id).get(where, ())):
            self._close(group_id, where, producer_id)
            by_group = self.pending[producer_id]
            del by_group[group_id][where]
            if not by_group[group_id]:
                del by_group[group_id]
                if not by_group:
                    del self.pending[producer_id]

    def _close(self, group_id: str, where: TopicPartition, producer_id: int) -> None:
        open_ = self._open[group_id]
        producers = open_[where]
        producers.discard(producer_id)
        if not producers:
            del open_[where]
            if not open_:
                del self._open[group_id]
