"""OffsetForLeaderEpoch: the end offset of an epoch, with which a client or follower finds where its log diverges.

Versions 2-4: 3 adds the replica id.
"""

from __future__ import annotations

from penstock.broker.apis.services import LogServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock.security.authorizer import CLUSTER, Operation, topic_resource

VERSIONS = (2, 4)


def handle(
    services: LogServices, request: Request, message: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    is_broker = request.could(Operation.CLUSTER_ACTION, CLUSTER)
    for topic in message.topics:
        allowed = is_broker or request.may(Operation.DESCRIBE, topic_resource(topic.topic))
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        for partition in topic.partitions:
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answer = _look_up(services, topic.topic, partition)
            except KafkaError as error:
                answer = EpochEndOffset(error_code=error.code)
            answer.partition = partition.partition
            result.partitions.append(answer)
        response.topics.append(result)
    return response


def _look_up(services: LogServices, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
    replica = services.replicas.get(topic, partition.partition)
    if replica is None:
        raise services.hints.not_here(topic, partition.partition)
    replica.leader_of(partition.current_leader_epoch)
    epoch, end_offset = replica.log.epochs.end_offset_for(partition.leader_epoch, replica.log.log_end_offset)
    return EpochEndOffset(leader_epoch=epoch, end_offset=end_offset)
