"""OffsetDelete: deletes a group's committed offsets of some partitions. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.security.authorizer import Operation, group_resource, topic_resource

VERSIONS = (0, 0)


def handle(services: GroupServices, request: Request, message: OffsetDeleteRequest) -> OffsetDeleteResponse | None:
    if not request.may(Operation.DELETE, group_resource(message.group_id)):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
    known: list[OffsetDeleteRequestTopic] = []
    for topic in message.topics:
        found = services.metadata.image.topics.by_name(topic.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        there = set() if found is None else set(found.partitions)
        if not request.may(Operation.READ, topic_resource(topic.name)):
            code, there = ErrorCode.TOPIC_AUTHORIZATION_FAILED, set()
        for each in topic.partitions:
            if each.partition_index not in there:
                refused.setdefault(topic.name, []).append(
                    OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                )
        topic.partitions = [each for each in topic.partitions if each.partition_index in there]
        if topic.partitions:
            known.append(topic)
    message.topics = known
    park = request.park()

    def answer(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            by_name = {topic.name: topic for topic in response.topics}
            for name, partitions in refused.items():
                if name in by_name:
                    by_name[name].partitions += partitions
                else:
                    response.topics.append(OffsetDeleteResponseTopic(name=name, partitions=partitions))
        park(response)

    caller = caller_of(request)
    services.coordinators.groups.submit(
        message.group_id,
        lambda shard, token, now_ms: shard.offset_delete(message, token, caller, now_ms),
        Waiting(answer, lambda code: OffsetDeleteResponse(error_code=code)),
        writes=True,
    )
    return None
