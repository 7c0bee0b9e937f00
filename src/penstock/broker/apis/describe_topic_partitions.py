"""DescribeTopicPartitions: topics in pages, including eligible leader replicas. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import ClusterServices
from penstock.broker.net.request import Request
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.topics import INTERNAL_TOPICS, check_topic_name
from penstock.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.security.authorizer import TOPIC_OPERATIONS, Operation, topic_resource

VERSIONS = (0, 0)


def handle(
    services: ClusterServices, request: Request, message: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    topics = services.metadata.image.topics
    names = sorted({topic.name for topic in message.topics} or set(topics.names))
    first_partition = 0
    if message.cursor is not None:
        if message.cursor.partition_index < 0 or (message.topics and message.cursor.topic_name not in names):
            return DescribeTopicPartitionsResponse(
                topics=[_refused(topic.name, ErrorCode.INVALID_REQUEST) for topic in message.topics]
            )
        start = message.cursor.topic_name
        names = [name for name in names if name >= start]
        if names and names[0] == start:
            first_partition = message.cursor.partition_index
    asked_for_all = not message.topics
    left = max(1, min(message.response_partition_limit, services.settings.now.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        asks = request.could if asked_for_all else request.may
        if not asks(Operation.DESCRIBE, topic_resource(name)):
            if not asked_for_all:
                response.topics.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        topic = topics.by_name(name)
        if topic is None:
            response.topics.append(_refused(name, _why_unknown(services, name)))
            continue
        result = DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=request.allowed_of(TOPIC_OPERATIONS, topic_resource(name)),
        )
        response.topics.append(result)
        for index in range(first_partition, len(topic.partitions)):
            if left == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=index)
                return response
            result.partitions.append(_partition(services, name, index))
            left -= 1
        first_partition = 0
    return response


def _why_unknown(services: ClusterServices, name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


def _partition(services: ClusterServices, topic: str, index: int) -> DescribeTopicPartitionsResponsePartition:
    partition = services.metadata.image.topics.partition(topic, index)
    assert partition is not None
    leader = services.metadata.image.brokers.get(partition.leader)
    has_leader = leader is not None and not leader.fenced
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        # Java's Admin cannot read null in these two fields, although the schema allows it.
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=services.metadata.image.offline_replicas(partition),
    )
