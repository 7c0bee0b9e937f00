"""DescribeLogDirs: the replicas in each log directory, their sizes, and the free space.

Versions 1-5: 3 adds an error for the whole response, 4 the size of the volume, 5 cordoned directories.

An offline directory is listed with KAFKA_STORAGE_ERROR and no other information.
"""

from __future__ import annotations

import os
from collections.abc import Container

from penstock.broker.apis.services import LogServices
from penstock.broker.net.request import Request
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (1, 5)


def handle(services: LogServices, request: Request, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not request.may(Operation.DESCRIBE, CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: set[tuple[str, int]] | None = None
    if message.topics is not None:
        wanted = {(topic.topic, index) for topic in message.topics for index in topic.partitions}
    cordoned = services.storage.cordoned
    results = [_describe(services, directory, wanted, cordoned) for directory in services.storage.directories]
    results += [_offline(path) for path in services.storage.log_directories.offline]
    return DescribeLogDirsResponse(results=results)


def _offline(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(log_dir=os.path.abspath(path), error_code=ErrorCode.KAFKA_STORAGE_ERROR)


def _describe(
    services: LogServices, directory: LogDirectory, wanted: set[tuple[str, int]] | None, cordoned: Container[str]
) -> DescribeLogDirsResult:
    try:
        total_bytes, usable_bytes = (
            services.files.total_bytes(directory.path),
            services.files.free_bytes(directory.path),
        )
    except OSError:  # the disk is gone, and nothing has written to it since
        return _offline(directory.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for logs, is_future in ((directory.logs, False), (directory.futures, True)):
        for (name, index), log in logs.items():
            if wanted is None or (name, index) in wanted:
                topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
                topic.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=log.size,
                        offset_lag=_lag(services, log) if is_future else 0,
                        is_future_key=is_future,
                    )
                )
    return DescribeLogDirsResult(
        log_dir=os.path.abspath(directory.path),
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=directory.path in cordoned,
    )


def _lag(services: LogServices, future: Log) -> int:
    """How far a future log is behind the current one; -1 if the current one is not open."""
    replica = services.replicas.get(*future.topic_partition)
    return -1 if replica is None else max(0, replica.log.log_end_offset - future.log_end_offset)
