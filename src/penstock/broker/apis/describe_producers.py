"""DescribeProducers: the idempotent and transactional producers that a partition remembers. Version 0.

Every replica answers for itself, leader or follower: a search for hanging transactions on one broker
(`kafka-transactions find-hanging --broker-id`) asks that broker about all of its partitions.
"""

from __future__ import annotations

from penstock.broker.apis.services import LogServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.security.authorizer import Operation, topic_resource

VERSIONS = (0, 0)


def handle(services: LogServices, request: Request, message: DescribeProducersRequest) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in message.topics:
        allowed = request.may(Operation.READ, topic_resource(topic.name))
        result = TopicResponse(name=topic.name)
        for index in dict.fromkeys(topic.partition_indexes):  # each once: a partition may have thousands of producers
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answer = PartitionResponse(active_producers=_producers(services, topic.name, index))
            except KafkaError as error:
                answer = PartitionResponse(error_code=error.code, error_message=error.message)
            answer.partition_index = index
            result.partitions.append(answer)
        response.topics.append(result)
    return response


def _producers(services: LogServices, topic: str, index: int) -> list[ProducerState]:
    replica = services.replicas.get(topic, index)
    if replica is None:
        is_elsewhere = services.metadata.image.topics.partition(topic, index) is not None
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_first_offset,
        )
        for producer in replica.log.producers.entries
    ]
