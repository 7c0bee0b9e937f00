"""FindCoordinator: finds the broker that coordinates a group, a transactional id or a share partition.

Versions 0-6: 1 adds transactional ids, 4 many keys in one request, 6 share partitions (group:topic id:partition). The
first request creates the internal topic of the coordinators; there is no coordinator until the topic has a leader.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.apis.services import ClusterServices
from penstock.broker.coordinators.internal_topics import internal_topic
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from penstock.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from penstock.security.authorizer import CLUSTER, Operation, group_resource, transactional_id_resource
from penstock.share_state.key import SharePartitionKey

VERSIONS = (0, 6)

BATCHED_SINCE: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
SHARE_SINCE: Final = 6


def handle(services: ClusterServices, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if request.version >= BATCHED_SINCE:
        coordinators = [_find(services, request, message.key_type, key) for key in message.coordinator_keys]
        for each in coordinators if message.key_type != SHARE else ():
            each.error_message = ""  # Kafka has none since there are several
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _find(services, request, message.key_type, message.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        # Up to version 3 Kafka sends a message for success, too.
        error_message=found.error_message if found.error_code else ErrorCode.NONE.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(services: ClusterServices, request: Request, key_type: int, key: str) -> Coordinator:
    try:
        return _coordinator(services, request, key_type, key)
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)


def _coordinator(services: ClusterServices, request: Request, key_type: int, key: str) -> Coordinator:
    if key_type == GROUP:
        if not request.may(Operation.DESCRIBE, group_resource(key)):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        topic, index = CONSUMER_OFFSETS, services.coordinators.groups.partition_of(key)
    elif key_type == TRANSACTION:
        if not request.may(Operation.DESCRIBE, transactional_id_resource(key)):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        topic, index = TRANSACTION_STATE, services.coordinators.transactions.partition_of(key)
    elif key_type == SHARE and request.version >= SHARE_SINCE:
        if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        try:
            share_partition = SharePartitionKey.parse(key)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        topic, index = SHARE_GROUP_STATE, services.coordinators.shares.partition_of(str(share_partition))
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")
    partition = services.metadata.image.topics.partition(topic, index)
    if partition is None:
        services.topic_creation.ask([internal_topic(topic, services.settings.now)])
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = services.metadata.image.brokers.get(partition.leader)
    endpoint = None if leader is None or leader.fenced else services.endpoints.reachable_at(request.connection, leader)
    if endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port)
