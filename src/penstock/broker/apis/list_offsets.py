"""ListOffsets: the ends of a partition, and the first offset at or after a time.

Versions 1-11: 2 adds isolation levels, 4 leader epochs, 7 the record with the largest timestamp, 8 and above the
bounds of tiered storage, which here is never used.

Only the leader answers, except to a debugging client. Right after an election it may not know yet how far the records
that its predecessor told of reach; until it does, the latest offset is not available rather than seem to go back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.leader_hints import not_here
from penstock.broker.replica import Replica
from penstock.broker.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.security.authorizer import Operation, topic_resource

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.LIST_OFFSETS
VERSIONS = (1, 11)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version from which on each special timestamp may be asked for.
SPECIAL_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

LEADER_EPOCHS_SINCE = 4
NOT_AVAILABLE_SINCE = 5
READ_COMMITTED = 1
DEBUGGING_CONSUMER = -2


def handle(node: Node, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    seen: set[tuple[str, int]] = set()
    duplicated: set[tuple[str, int]] = set()
    for topic in message.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            (duplicated if key in seen else seen).add(key)
    for topic in message.topics:
        allowed = request.may(Operation.DESCRIBE, topic_resource(topic.name))
        result = ListOffsetsTopicResponse(name=topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if (topic.name, index) in duplicated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                replica = node.replicas.get(topic.name, index)
                if replica is None:
                    raise not_here(node, topic.name, index)
                answer = _look_up(replica, partition, message, request.version)
            except KafkaError as error:
                answer = ListOffsetsPartitionResponse(error_code=error.code)
            answer.partition_index = index
            if request.version < LEADER_EPOCHS_SINCE:
                answer.leader_epoch = -1
            result.partitions.append(answer)
        response.topics.append(result)
    return response


def _look_up(
    replica: Replica, partition: ListOffsetsPartition, message: ListOffsetsRequest, version: int
) -> ListOffsetsPartitionResponse:
    log = replica.log
    timestamp = partition.timestamp
    if message.replica_id == DEBUGGING_CONSUMER:
        replica.check_epoch(partition.current_leader_epoch)
    else:
        replica.leader_of(partition.current_leader_epoch)
    if timestamp < 0 and version < SPECIAL_SINCE.get(timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if message.replica_id >= 0:
        end, is_known = log.log_end_offset, True  # a follower's limit is the log's
    else:
        end = replica.last_stable_offset if message.isolation_level == READ_COMMITTED else replica.high_watermark
        is_known = replica.leader is None or replica.leader.is_settled
    not_available = KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE if version >= NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
    )
    if timestamp == LATEST:
        if not is_known:
            raise not_available
        return ListOffsetsPartitionResponse(offset=end, leader_epoch=replica.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return ListOffsetsPartitionResponse(offset=start, leader_epoch=_epoch_at(replica, start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return ListOffsetsPartitionResponse()  # nothing is ever tiered
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None:
        return ListOffsetsPartitionResponse()
    if found.offset >= end:
        if not is_known:
            raise not_available
        return ListOffsetsPartitionResponse()
    return ListOffsetsPartitionResponse(offset=found.offset, timestamp=found.timestamp, leader_epoch=found.leader_epoch)


def _epoch_at(replica: Replica, offset: int) -> int:
    epoch = replica.log.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch
