"""AlterReplicaLogDirs (API key 34). Move replicas between the log directories of a broker."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class AlterReplicaLogDirsRequest(Message, key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field("0+")


class AlterReplicaLogDir(Message):
    path: str = field("0+")
    topics: list[AlterReplicaLogDirTopic] = field("0+")


class AlterReplicaLogDirTopic(Message):
    name: str = field("0+")
    partitions: list[Int32] = field("0+")


class AlterReplicaLogDirsResponse(Message, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[AlterReplicaLogDirTopicResult] = field("0+")


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = field("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = field("0+")


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
