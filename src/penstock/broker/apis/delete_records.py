"""DeleteRecords: moves the start of a partition forward and deletes the records before it.

Versions 0-2. Offset -1 means the high watermark. The response waits until no live replica has the records any more, and
none would have them again after a power loss, or until the timeout. It has the low watermark that each partition
reached.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.apis.services import LogServices
from penstock.broker.net.request import Request
from penstock.broker.partitions.replica import Replica
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.security.authorizer import Operation, topic_resource

VERSIONS = (0, 2)

HIGH_WATERMARK = -1
ANY_EPOCH = -1


def handle(services: LogServices, request: Request, message: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
    response = DeleteRecordsResponse()
    pending: dict[int, tuple[Replica, DeleteRecordsPartitionResult, int]] = {}
    for topic in message.topics:
        allowed = request.may(Operation.DELETE, topic_resource(topic.name))
        result = DeleteRecordsTopicResult(name=topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            answer = DeleteRecordsPartitionResult(partition_index=index)
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                replica, offset = _delete(services, topic.name, index, partition.offset)
                answer.low_watermark = replica.low_watermark
                if answer.low_watermark < offset:
                    pending[id(answer)] = (replica, answer, offset)
            except KafkaError as error:
                _refuse(answer, error.code)
            result.partitions.append(answer)
        response.topics.append(result)
    if not pending:
        return response
    _wait(services, pending, message.timeout_ms / 1000, request.park(), response)
    return None


def _delete(services: LogServices, topic: str, index: int, offset: int) -> tuple[Replica, int]:
    """Delete on this broker; returns the replica and the new start offset."""
    replica = services.replicas.get(topic, index)
    if replica is None:
        raise services.hints.not_here(topic, index)
    leader = replica.leader_of(ANY_EPOCH)
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
        services.storage.delete_before(replica, offset)
    return replica, offset


def _wait(
    services: LogServices,
    pending: dict[int, tuple[Replica, DeleteRecordsPartitionResult, int]],
    seconds: float,
    answer: Callable[[DeleteRecordsResponse], None],
    response: DeleteRecordsResponse,
) -> None:
    """Wait until the followers have deleted the records too."""

    def expire() -> None:
        for _, partition, _ in pending.values():
            _refuse(partition, ErrorCode.REQUEST_TIMED_OUT)
        pending.clear()
        answer(response)

    deadline = services.loop.call_later(max(0, seconds), expire)

    def done(key: int) -> None:
        found = pending.pop(key, None)
        if found is None:
            return  # already answered
        replica, partition, _ = found
        if replica.leader is None:
            _refuse(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            partition.low_watermark = replica.low_watermark
        if not pending:
            deadline.cancel()
            answer(response)

    for key, (replica, _, offset) in list(pending.items()):
        replica.wait_for_delete(offset, lambda key=key: done(key))  # type: ignore[misc]


def _refuse(answer: DeleteRecordsPartitionResult, code: ErrorCode) -> None:
    answer.low_watermark = -1
    answer.error_code = code
