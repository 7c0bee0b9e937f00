"""AlterReplicaLogDirs: moves replicas of this broker between its log directories (KIP-113).

Versions 1-2, which differ only in encoding. The response says that a move has started; DescribeLogDirs shows its
progress (`is_future_key`). A request for the directory that a replica is in cancels its move. For a partition that is
not here yet the response is an error, but the broker uses the requested directory when the partition arrives.
"""

from __future__ import annotations

from penstock.broker.apis.services import LogServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (1, 2)


def handle(services: LogServices, request: Request, message: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    may_alter = request.may(Operation.ALTER, CLUSTER)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            for index in topic.partitions:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if may_alter:
                    code = _ask(services, TopicPartition(topic.name, index), directory.path)
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _ask(services: LogServices, partition: TopicPartition, path: str) -> ErrorCode:
    try:
        services.storage.mover.ask(partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
