"""What is in the log directories of brokers, and how large it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.errors import raise_for
from penstock.model.errors import ErrorCode
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
    future: bool  # on its way to this directory from another one of the broker


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    broker_id: int
    path: str
    error: str | None  # the directory is offline
    total_bytes: int | None  # of the volume; None from brokers that do not tell
    usable_bytes: int | None
    replicas: tuple[ReplicaSize, ...]


class LogDirs:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, broker_ids: Iterable[int] | None = None) -> list[LogDirDescription]:
        """Of these brokers, or of all that are alive."""
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
    )
