"""AssignReplicasToDirs (API key 73). A broker reports to the controller the log directory of each replica."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class AssignReplicasToDirsRequest(Message, key=73, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData] = field("0+")


class AssignReplicasToDirsRequestDirectoryData(Message):
    id: Uuid = field("0+")
    topics: list[AssignReplicasToDirsRequestTopicData] = field("0+")


class AssignReplicasToDirsRequestTopicData(Message):
    topic_id: Uuid = field("0+")
    partitions: list[AssignReplicasToDirsRequestPartitionData] = field("0+")


class AssignReplicasToDirsRequestPartitionData(Message):
    partition_index: Int32 = field("0+")


class AssignReplicasToDirsResponse(Message, key=73, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    directories: list[AssignReplicasToDirsResponseDirectoryData] = field("0+")


class AssignReplicasToDirsResponseDirectoryData(Message):
    id: Uuid = field("0+")
    topics: list[AssignReplicasToDirsResponseTopicData] = field("0+")


class AssignReplicasToDirsResponseTopicData(Message):
    topic_id: Uuid = field("0+")
    partitions: list[AssignReplicasToDirsResponsePartitionData] = field("0+")


class AssignReplicasToDirsResponsePartitionData(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
