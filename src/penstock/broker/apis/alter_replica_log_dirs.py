"""AlterReplicaLogDirs: move replicas of this broker to other ones of its log directories (KIP-113).

Versions 1-2, which differ in their encoding only. The answer says that a move has begun; how far it is, is told by
DescribeLogDirs (`is_future_key`). To ask for the directory that a replica is in cancels its move. A partition that is
not here yet is put into the directory that was asked for when it comes, and the answer is an error all the same.
"""

from __future__ import annotations

from penstock.broker.apis.services import LogServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.ALTER_REPLICA_LOG_DIRS
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
