"""OffsetCommit: stores the committed offsets of a group.

Versions 2-10: 6 adds leader epochs, 7 static members, 9 members of the new protocol, 10 topic ids. This module refuses
partitions that do not exist or may not be read, one by one; the group shard handles the others.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.security.authorizer import Operation, group_resource, topic_resource

VERSIONS = (2, 10)

TOPIC_IDS_SINCE = 10


def handle(services: GroupServices, request: Request, message: OffsetCommitRequest) -> OffsetCommitResponse | None:
    if not request.may(Operation.READ, group_resource(message.group_id)):
        return _refusal(message.topics, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused = OffsetCommitResponse()
    known: list[OffsetCommitRequestTopic] = []
    for topic in message.topics:
        _admit(services, request, topic, known, refused)
    if not known and message.topics:
        return refused
    message.topics = known
    park = request.park()

    def answer(response: OffsetCommitResponse) -> None:
        _merge(response, refused)
        park(response)

    caller = caller_of(request)
    services.coordinators.groups.submit(
        message.group_id,
        lambda shard, token, now_ms: shard.offset_commit(message, token, caller, now_ms),
        Waiting(answer, lambda code: _refusal(known, code)),
        writes=True,
    )
    return None


def _admit(
    services: GroupServices,
    request: Request,
    topic: OffsetCommitRequestTopic,
    known: list[OffsetCommitRequestTopic],
    refused: OffsetCommitResponse,
) -> None:
    """Split the partitions of a topic, which gets both name and id, into existing ones and refused ones."""
    topics = services.metadata.image.topics
    if request.version >= TOPIC_IDS_SINCE:
        found = topics.by_id(topic.topic_id)
        if found is None:
            refused.topics.append(_refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            return
        topic.name = found.name
    else:
        found = topics.by_name(topic.name)
    if not request.may(Operation.READ, topic_resource(topic.name)):
        refused.topics.append(_refuse(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    elif found is None:
        refused.topics.append(_refuse(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    else:
        topic.topic_id = found.topic_id
        missing = [each for each in topic.partitions if each.partition_index not in found.partitions]
        if missing:
            topic.partitions = [each for each in topic.partitions if each.partition_index in found.partitions]
            without = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=missing)
            refused.topics.append(_refuse(without, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if topic.partitions:
            known.append(topic)


def _refusal(topics: list[OffsetCommitRequestTopic], code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refuse(topic, code) for topic in topics])


def _refuse(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _merge(response: OffsetCommitResponse, refused: OffsetCommitResponse) -> None:
    """Each topic appears once, with all of its partitions."""
    by_name = {topic.name: topic for topic in response.topics}
    for topic in refused.topics:
        if topic.name and topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            response.topics.append(topic)
