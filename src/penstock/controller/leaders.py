"""Who leads: the partition changes that follow when a broker goes or comes.

A broker that goes leaves the in-sync replicas, unless it is the last of them: then nobody leads, and it is remembered
as the one that has everything. A broker that comes back leads again what only it can lead. Every new leadership has
its own leader epoch, so that a restart, which may have cost an unsynced tail, is visible to followers and consumers.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.metadata.image import MetadataImage
from penstock.metadata.partition import NO_LEADER, NO_LEADER_CHANGE, Partition
from penstock.protocol.messages.metadata_records import PartitionChangeRecord


def changes_when_gone(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """For a broker that is fenced or was restarted."""
    for topic in image.topics:
        for partition_id, partition in topic.partitions.items():
            if broker_id not in partition.isr:
                continue
            isr = [member for member in partition.isr if member != broker_id]
            leader = partition.leader
            if leader == broker_id:
                leader = _first_active(image, partition, isr)
            if isr or leader != partition.leader:
                yield PartitionChangeRecord(
                    topic_id=topic.topic_id,
                    partition_id=partition_id,
                    isr=isr or None,
                    leader=NO_LEADER_CHANGE if leader == partition.leader else leader,
                )


def changes_when_back(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """For a broker that is about to be unfenced."""
    for topic in image.topics:
        for partition_id, partition in topic.partitions.items():
            if partition.leader == NO_LEADER and broker_id in partition.isr:
                yield PartitionChangeRecord(topic_id=topic.topic_id, partition_id=partition_id, leader=broker_id)


def _first_active(image: MetadataImage, partition: Partition, isr: list[int]) -> int:
    """The most preferred replica that is in sync and can lead."""
    for replica in partition.replicas:
        if replica in isr and replica in image.brokers and image.brokers[replica].active:
            return replica
    return NO_LEADER
