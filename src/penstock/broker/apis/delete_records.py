"""DeleteRecords: move a partition's start forward; what is before it is gone.

Versions 0-2. Offset -1 means the high watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.security.authorizer import Operation, topic_resource

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.DELETE_RECORDS
VERSIONS = (0, 2)

HIGH_WATERMARK = -1


def handle(node: Node, request: Request, message: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in message.topics:
        allowed = request.may(Operation.DELETE, topic_resource(topic.name))
        result = DeleteRecordsTopicResult(name=topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                low_watermark = _delete(node, topic.name, index, partition.offset)
                answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
            except KafkaError as error:
                answer = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
            result.partitions.append(answer)
        response.topics.append(result)
    return response


def _delete(node: Node, topic: str, index: int, offset: int) -> int:
    replica = node.replicas.get(topic, index)
    if replica is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = replica.leader_of(-1)
    log = replica.log
    if "delete" not in log.settings.cleanup_policy:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "records can be deleted only from topics with cleanup.policy=delete"
        )
    if offset == HIGH_WATERMARK:
        offset = leader.high_watermark
    if offset < 0 or offset > leader.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if offset > log.log_start_offset:
        log.advance_log_start(offset)
        node.storage.log_start_moved(replica)
    return log.log_start_offset
