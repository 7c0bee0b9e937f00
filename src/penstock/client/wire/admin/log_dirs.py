"""The log directories of brokers: contents, sizes, and moves of replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    topic: str
    partition: int
    size: int  # bytes of its segments
    offset_lag: int  # behind the high watermark, or behind the current replica for a future one
    future: bool  # being copied to this directory from another one of the broker


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    broker_id: int
    path: str
    error: str | None  # the directory is offline
    total_bytes: int | None  # of the volume; None from brokers that do not report it
    usable_bytes: int | None
    replicas: tuple[ReplicaSize, ...]
    cordoned: bool = False  # takes no new replicas


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """A replica that is being moved from one directory of its broker to another."""

    broker_id: int
    topic: str
    partition: int
    source: str
    target: str
    offset_lag: int  # how far the copy is behind


class LogDirs:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, broker_ids: Iterable[int] | None = None) -> list[LogDirDescription]:
        """Describe the directories of these brokers, or of all that are alive."""
        wanted = None if broker_ids is None else sorted(set(broker_ids))
        return self._cluster.patiently(lambda: self._describe(self._cluster.broker_ids() if wanted is None else wanted))

    def _describe(self, broker_ids: Iterable[int]) -> list[LogDirDescription]:
        described = []
        for broker_id in broker_ids:
            request = DescribeLogDirsRequest(topics=None)
            response = self._cluster.request_broker(broker_id, request, DescribeLogDirsResponse)
            raise_for(response.error_code, None, f"log directories of broker {broker_id}")
            described += [_described(broker_id, result) for result in response.results]
        return described

    def move(self, broker_id: int, targets: Mapping[TopicPartition, str]) -> None:
        """Move replicas of a broker to other log directories of it.

        They remain readable and writable. A move is done when `moves` no longer lists it. Naming the current directory
        of a replica cancels its move.
        """
        directories: dict[str, dict[str, list[int]]] = {}
        for partition, path in targets.items():
            directories.setdefault(path, {}).setdefault(partition.topic, []).append(partition.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=partitions)
                        for topic, partitions in topics.items()
                    ],
                )
                for path, topics in directories.items()
            ]
        )
        response = self._cluster.request_broker(broker_id, request, AlterReplicaLogDirsResponse)
        for topic in response.results:
            for result in topic.partitions:
                moved = TopicPartition(topic.topic_name, result.partition_index)
                raise_for(result.error_code, None, f"cannot move {moved} on broker {broker_id}")

    def moves(self, broker_ids: Iterable[int] | None = None) -> list[ReplicaMove]:
        """Return the replicas that are being moved."""
        described = self.describe(broker_ids)
        homes = {
            (each.broker_id, replica.topic, replica.partition): each.path
            for each in described
            for replica in each.replicas
            if not replica.future
        }
        return [
            ReplicaMove(each.broker_id, replica.topic, replica.partition, home, each.path, replica.offset_lag)
            for each in described
            for replica in each.replicas
            if replica.future and (home := homes.get((each.broker_id, replica.topic, replica.partition))) is not None
        ]

    def cancel(self, broker_id: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Leave replicas where they are; return those that were being moved."""
        wanted = set(partitions)
        moving = {TopicPartition(each.topic, each.partition): each.source for each in self.moves([broker_id])}
        cancelled = {partition: source for partition, source in moving.items() if partition in wanted}
        if cancelled:
            self.move(broker_id, cancelled)
        return list(cancelled)


def _described(broker_id: int, result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        broker_id=broker_id,
        path=result.log_dir,
        error=ErrorCode(result.error_code).name if result.error_code else None,
        total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
        usable_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
        replicas=tuple(
            ReplicaSize(
                topic.name,
                partition.partition_index,
                partition.partition_size,
                partition.offset_lag,
                partition.is_future_key,
            )
            for topic in result.topics
            for partition in topic.partitions
        ),
        cordoned=result.is_cordoned,
    )
