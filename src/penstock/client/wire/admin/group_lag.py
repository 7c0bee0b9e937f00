"""The lag of a group: its committed offsets, the ends of the partitions, and the members that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.wire.admin.group_members import GroupDescription
from penstock.client.wire.admin.group_offsets import CommittedOffset
from penstock.client.wire.cluster import Cluster
from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    topic: str
    partition: int
    member_id: str | None  # None: no member reads it now
    client_id: str | None
    committed: int | None  # None: never committed
    end: int | None  # None: the partition does not exist, or has no leader
    lag: int | None  # records between the two


def lag_of(
    group: GroupDescription, committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]
) -> list[PartitionLag]:
    """Return the lag of every partition that a member has or that the group has committed in."""
    owners = group.owners()
    lags = []
    for partition in sorted({*owners, *committed}):
        owner = owners.get(partition)
        offset = committed[partition].offset if partition in committed else None
        end = ends.get(partition)
        lags.append(
            PartitionLag(
                topic=partition.topic,
                partition=partition.partition,
                member_id=None if owner is None else owner.member_id,
                client_id=None if owner is None else owner.client_id,
                committed=offset,
                end=end,
                lag=None if offset is None or end is None else max(0, end - offset),
            )
        )
    return lags


def with_leaders(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that exist and have a leader."""
    wanted = sorted(set(partitions))
    if not wanted:
        return []
    led = {
        TopicPartition(topic.name or "", partition.partition_index)
        for topic in cluster.metadata(sorted({partition.topic for partition in wanted})).topics
        for partition in topic.partitions
        if partition.leader_id >= 0
    }
    return [partition for partition in wanted if partition in led]
