"""ListOffsets: the start and end offsets of a partition, and the first offset at or after a timestamp.

Versions 1-11: 2 adds isolation levels, 4 leader epochs, 7 the record with the largest timestamp, 8 and above the
bounds of tiered storage, which is never used here.

Only the leader answers, except to a debugging client. Right after an election the leader may not know yet up to where
its predecessor had committed; until it does, the latest offset is not available, because it must not appear to go back.

A search by timestamp reads batches and runs on a thread (`searches`); the request waits for all of its searches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from penstock.broker.apis.services import LogServices
from penstock.broker.net.request import Request
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.searches import Search
from penstock.log.log import Log, TimestampedOffset
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.security.authorizer import Operation, topic_resource

VERSIONS = (1, 11)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The first version that supports each special timestamp.
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

logger = logging.getLogger("penstock.list_offsets")


Found = TimestampedOffset | None


def handle(services: LogServices, request: Request, message: ListOffsetsRequest) -> ListOffsetsResponse | None:
    response = ListOffsetsResponse()
    searches: list[Search[Found]] = []
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
                replica = services.replicas.get(topic.name, index)
                if replica is None:
                    raise services.hints.not_here(topic.name, index)
                answer = _look_up(replica, partition, message, request.version)
                if isinstance(answer, ByTime):
                    place = ListOffsetsPartitionResponse()
                    work = _search(replica.log, partition.timestamp, request.connection.listener.request_bytes_max)
                    searches.append(Search(work, partial(_found, place, answer, request.version)))
                    answer = place
            except KafkaError as error:
                answer = ListOffsetsPartitionResponse(error_code=error.code)
            answer.partition_index = index
            if request.version < LEADER_EPOCHS_SINCE:
                answer.leader_epoch = -1
            result.partitions.append(answer)
        response.topics.append(result)
    if not searches:
        return response
    _search_all(services, request, response, searches)
    return None


def _search_all(
    services: LogServices, request: Request, response: ListOffsetsResponse, searches: list[Search[Found]]
) -> None:
    give_up: list[Callable[[], None]] = []
    answer = request.park(on_lost=lambda: give_up[0]())

    def failed(error: BaseException) -> None:
        logger.error("a search by time failed", exc_info=error)
        request.connection.abort()

    give_up.append(services.searches.run(searches, lambda: answer(response), failed))


class ByTime(NamedTuple):
    """A search in the log by timestamp; a result counts only below `end`."""

    end: int
    is_known: bool


def _search(log: Log, timestamp: int, max_size: int) -> Callable[[], Found]:
    if timestamp == MAX_TIMESTAMP:
        return lambda: log.offset_of_max_timestamp(max_size=max_size)
    return lambda: log.offset_for_timestamp(timestamp, max_size=max_size)


def _found(answer: ListOffsetsPartitionResponse, asked: ByTime, version: int, found: Found | KafkaError) -> None:
    if isinstance(found, KafkaError):
        answer.error_code = found.code
    elif found is not None and found.offset < asked.end:
        answer.offset, answer.timestamp = found.offset, found.timestamp
        if version >= LEADER_EPOCHS_SINCE:
            answer.leader_epoch = found.leader_epoch
    elif found is not None and not asked.is_known:
        answer.error_code = _not_available(version)


def _not_available(version: int) -> ErrorCode:
    return ErrorCode.OFFSET_NOT_AVAILABLE if version >= NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE


def _look_up(
    replica: Replica, partition: ListOffsetsPartition, message: ListOffsetsRequest, version: int
) -> ListOffsetsPartitionResponse | ByTime:
    log = replica.log
    timestamp = partition.timestamp
    if message.replica_id == DEBUGGING_CONSUMER:
        replica.check_epoch(partition.current_leader_epoch)
    else:
        replica.leader_of(partition.current_leader_epoch)
    if timestamp < 0 and version < SPECIAL_SINCE.get(timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if message.replica_id >= 0:
        end, is_known = log.log_end_offset, True  # a follower reads up to the end of the log
    else:
        end = replica.last_stable_offset if message.isolation_level == READ_COMMITTED else replica.high_watermark
        is_known = replica.leader is None or replica.leader.is_settled
    if timestamp == LATEST:
        if not is_known:
            raise KafkaError(_not_available(version))
        return ListOffsetsPartitionResponse(offset=end, leader_epoch=replica.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return ListOffsetsPartitionResponse(offset=start, leader_epoch=_epoch_at(replica, start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return ListOffsetsPartitionResponse()  # there is no tiered storage
    return ByTime(end, is_known)


def _epoch_at(replica: Replica, offset: int) -> int:
    epoch = replica.log.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch
