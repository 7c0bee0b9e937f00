"""Metadata: brokers, topics, partitions and their leaders; creates requested topics if that is allowed.

Versions 0-13: 4 lets the client forbid creation, 7 adds leader epochs, 10 topic ids, 12 lookup by id.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.apis.services import ClusterServices
from penstock.broker.coordinators.internal_topics import internal_topic
from penstock.broker.net.request import Request
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.metadata.topics import Topic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID
from penstock.model.topics import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    check_topic_name,
)
from penstock.protocol.messages.create_topics import CreatableTopic
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.security.authorizer import CLUSTER, TOPIC_OPERATIONS, Operation, topic_resource

VERSIONS = (0, 13)

IDS_ASKED_FOR_SINCE = 12


def handle(
    services: ClusterServices, request: Request, message: MetadataRequest
) -> Generator[None, None, MetadataResponse]:
    image = services.metadata.image
    response = MetadataResponse(cluster_id=services.cluster_id, controller_id=services.settings.static.node_id)
    for broker in image.brokers.values():
        if broker.fenced and not services.departed.lately(broker.broker_id):
            continue
        endpoint = services.endpoints.reachable_at(request.connection, broker)
        if endpoint is not None:
            response.brokers.append(
                MetadataResponseBroker(
                    node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    wants_all = message.topics is None or (request.version == 0 and not message.topics)
    if wants_all:
        for topic in image.topics:
            if request.could(Operation.DESCRIBE, topic_resource(topic.name)):
                response.topics.append(_describe(services, request, message, topic))
                yield
    elif _asks_by_id_too_early(request, message):
        # As in Kafka: the request as a whole is invalid, and each of its topics gets the error.
        for wanted in message.topics or ():
            response.topics.append(_refused(request, wanted.name, ErrorCode.INVALID_REQUEST, wanted.topic_id))
    else:
        missing: list[str] = []
        each_once = {(wanted.topic_id, wanted.name): wanted for wanted in message.topics or ()}
        for wanted in each_once.values():
            response.topics.append(_wanted(services, request, message, wanted, missing))
            yield
        if missing:
            _create(services, missing)
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = request.allowed_of_cluster()
    return response


def _creates(services: ClusterServices, message: MetadataRequest) -> bool:
    """Whether topics that do not exist are created, if the client has the right to do so."""
    return message.allow_auto_topic_creation and services.settings.now.auto_create_topics_enable


def _asks_by_id_too_early(request: Request, message: MetadataRequest) -> bool:
    """Versions 10 and 11 have a field for a topic id in the request, but do not support lookup by id."""
    return request.version < IDS_ASKED_FOR_SINCE and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in message.topics or ()
    )


def _wanted(
    services: ClusterServices,
    request: Request,
    message: MetadataRequest,
    wanted: MetadataRequestTopic,
    missing: list[str],
) -> MetadataResponseTopic:
    topics = services.metadata.image.topics
    if wanted.name is None or wanted.topic_id != ZERO_UUID:
        topic = topics.by_id(wanted.topic_id)
        if topic is None:
            return _refused(request, None, ErrorCode.UNKNOWN_TOPIC_ID, wanted.topic_id)
        if not request.may(Operation.DESCRIBE, topic_resource(topic.name)):
            # Ids are no secret, names are.
            return _refused(request, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted.topic_id)
        return _describe(services, request, message, topic)
    name = wanted.name
    if not request.may(Operation.DESCRIBE, topic_resource(name)):
        return _refused(request, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = topics.by_name(name)
    if topic is not None:
        return _describe(services, request, message, topic)
    try:
        check_topic_name(name)
    except KafkaError as error:
        return _refused(request, name, error.code)
    if _creates(services, message):
        if not request.could(Operation.CREATE, CLUSTER) and not request.may(Operation.CREATE, topic_resource(name)):
            return _refused(request, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        missing.append(name)
    return _refused(request, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _refused(
    request: Request, name: str | None, error: ErrorCode, topic_id: bytes = ZERO_UUID
) -> MetadataResponseTopic:
    if name is None and request.version < 12:
        name = ""  # older clients cannot read a null here
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS)


def _describe(
    services: ClusterServices, request: Request, message: MetadataRequest, topic: Topic
) -> MetadataResponseTopic:
    result = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(services, request, index, topic.partitions[index]) for index in sorted(topic.partitions)
        ],
    )
    if message.include_topic_authorized_operations:
        result.topic_authorized_operations = request.allowed_of(TOPIC_OPERATIONS, topic_resource(topic.name))
    return result


def _partition(
    services: ClusterServices, request: Request, index: int, partition: Partition
) -> MetadataResponsePartition:
    error = ErrorCode.NONE
    leader_id = partition.leader
    leader = services.metadata.image.brokers.get(leader_id)
    if leader is None or leader.fenced:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        leader_id = NO_LEADER
    elif request.connection.listener.name not in leader.endpoints:
        error = ErrorCode.LISTENER_NOT_FOUND if request.version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
        leader_id = NO_LEADER
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=services.metadata.image.offline_replicas(partition),
    )


def _create(services: ClusterServices, names: list[str]) -> None:
    """Request the topics from the controller; clients find them when they ask again."""
    services.topic_creation.ask(
        internal_topic(name, services.settings.now)
        if name in (CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE)
        else CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        for name in names
    )
