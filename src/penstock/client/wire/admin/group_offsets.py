"""Committed offsets of groups: fetch, alter and delete.

Offsets are addressed by topic name, so requests use the last version that does so; later ones use topic ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.admin.topics import by_topic
from penstock.client.wire.cluster import Cluster, CoordinatorType
from penstock.model.ids import TopicPartition
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_NAMES_UNTIL = 9
_MANY_GROUPS_SINCE = 8


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int  # of the next record to read
    leader_epoch: int | None = None
    metadata: str = ""


class GroupOffsets:
    """Each method makes one attempt; `Groups` repeats it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def fetch(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        coordinator = self._coordinator(group_id)
        if self._cluster.version(ApiKey.OFFSET_FETCH, coordinator) >= _MANY_GROUPS_SINCE:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        else:
            request = OffsetFetchRequest(group_id=group_id, topics=None)
        response = self._cluster.request_broker(coordinator, request, OffsetFetchResponse, newest=_NAMES_UNTIL)
        raise_for(response.error_code, None, f"offsets of group {group_id!r}")
        for group in response.groups:
            raise_for(group.error_code, None, f"offsets of group {group_id!r}")
        committed: dict[TopicPartition, CommittedOffset] = {}
        for name, found in _answered(response):
            partition = TopicPartition(name, found.partition_index)
            raise_for(found.error_code, None, f"offset of group {group_id!r} in {partition}")
            if found.committed_offset >= 0:
                epoch = found.committed_leader_epoch
                committed[partition] = CommittedOffset(
                    found.committed_offset, epoch if epoch >= 0 else None, found.metadata or ""
                )
        return dict(sorted(committed.items()))

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[_committing(index, offsets[TopicPartition(name, index)]) for index in indexes],
            )
            for name, indexes in by_topic(sorted(offsets)).items()
        ]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        coordinator = self._coordinator(group_id)
        response = self._cluster.request_broker(coordinator, request, OffsetCommitResponse, newest=_NAMES_UNTIL)
        for topic in response.topics:
            for result in topic.partitions:
                about = f"cannot set the offset of group {group_id!r} in {topic.name}-{result.partition_index}"
                raise_for(result.error_code, None, about)

    def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in by_topic(sorted(partitions)).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        response = self._cluster.request_broker(self._coordinator(group_id), request, OffsetDeleteResponse)
        raise_for(response.error_code, None, f"cannot delete offsets of group {group_id!r}")
        for topic in response.topics:
            for result in topic.partitions:
                about = f"cannot delete the offset of group {group_id!r} in {topic.name}-{result.partition_index}"
                raise_for(result.error_code, None, about)

    def _coordinator(self, group_id: str) -> int:
        (coordinator,) = self._cluster.coordinators(CoordinatorType.GROUP, [group_id])
        return coordinator


def _answered(
    response: OffsetFetchResponse,
) -> Iterator[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    """Return the answered topics, from the field that this version uses."""
    for topic in response.topics:
        yield from ((topic.name, partition) for partition in topic.partitions)
    for group in response.groups:
        for each in group.topics:
            yield from ((each.name, partition) for partition in each.partitions)


def _committing(index: int, offset: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )
