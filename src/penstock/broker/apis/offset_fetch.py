"""OffsetFetch: returns the committed offsets of groups.

Versions 1-10: 2 adds requests for all topics and an error for the whole response, 5 leader epochs, 7 can require
offsets that no open transaction can change, 8 adds several groups, 9 the member that asks, 10 topic ids. Older requests
are converted to the form of version 8, and the response back.

If OffsetFetch fails with NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, librdkafka (2.16) forgets the partitions it
asked for, and does not read them until the next rebalance. After COORDINATOR_LOAD_IN_PROGRESS it retries, and learns
the new coordinator from its heartbeats. So it gets that error for as long as it may help. All other clients look for
the coordinator at once when they get the correct error, and would lose time with the other one.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import Gathering, ask_each, caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.coordinator.decision import Caller
from penstock.groups.offset_fetch import single_group
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.security.authorizer import Operation, group_resource, topic_resource

VERSIONS = (1, 10)

TOP_LEVEL_ERROR_SINCE = 2
GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10

LIBRDKAFKA = "rdkafka"  # clients that are built on it have this in their software version


def handle(services: GroupServices, request: Request, message: OffsetFetchRequest) -> None:
    groups = _each_once(message.groups) if request.version >= GROUPS_SINCE else [_as_group(message)]
    answers: list[OffsetFetchResponseGroup] = []
    answer = request.park(mute=len(groups) > 1)

    def done() -> None:
        if request.version >= GROUPS_SINCE:
            answer(OffsetFetchResponse(groups=answers))
        else:
            answer(_as_before_groups(request.version, groups[0], answers[0]))

    def ask(group: OffsetFetchRequestGroup) -> None:
        _fetch(services, request, group, message.require_stable, answers, gathering)

    gathering = Gathering(len(groups), done)
    if len(groups) == 1:
        ask(groups[0])
    else:
        ask_each(services.coordinators.groups.upkeep, request, groups, ask)


def _each_once(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Drop repeated requests for all offsets of a group: a short request could ask for a huge response."""
    asked: set[str] = set()
    kept = []
    for group in groups:
        if group.topics is None:
            if group.group_id in asked:
                continue
            asked.add(group.group_id)
        kept.append(group)
    return kept


def _as_group(message: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if message.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in message.topics
        ]
    return OffsetFetchRequestGroup(group_id=message.group_id, topics=topics)


def _fetch(
    services: GroupServices,
    request: Request,
    group: OffsetFetchRequestGroup,
    require_stable: bool,
    answers: list[OffsetFetchResponseGroup],
    gathering: Gathering,
) -> None:
    refused: list[OffsetFetchResponseTopics] = []

    def fetched(response: OffsetFetchResponse) -> None:
        (result,) = response.groups
        if not result.error_code:
            if group.topics is None:
                result.topics = [topic for topic in result.topics if _may_show(services, request, topic)]
            result.topics += refused
        answers.append(result)
        gathering.one_more()

    def refusal(code: ErrorCode) -> OffsetFetchResponse:
        if LIBRDKAFKA in request.connection.client_software and (
            code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            or (code is ErrorCode.NOT_COORDINATOR and services.coordinators.groups.has_just_resigned(group.group_id))
        ):
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)])

    if not request.may(Operation.DESCRIBE, group_resource(group.group_id)):
        fetched(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    if group.topics is not None:
        group.topics = [topic for topic in group.topics if _admit(services, request, topic, refused)]
    # The shard gets the form of the latest versions, whatever the client's version is.
    version = max(request.version, GROUPS_SINCE)
    caller = Caller(*caller_of(request)[:2], version)
    asked = OffsetFetchRequest(groups=[group], require_stable=require_stable)
    services.coordinators.groups.submit(
        group.group_id,
        lambda shard, token, now_ms: shard.offset_fetch(asked, token, caller, now_ms),
        Waiting(fetched, refusal),
        is_current=True,  # a consumer that starts at old offsets repeats records, and commits old offsets
    )


def _admit(
    services: GroupServices, request: Request, topic: OffsetFetchRequestTopics, refused: list[OffsetFetchResponseTopics]
) -> bool:
    code = ErrorCode.NONE
    if request.version >= TOPIC_IDS_SINCE:
        topic.name = services.metadata.image.topics.name_of(topic.topic_id) or ""
    else:
        topic.topic_id = services.metadata.image.topics.id_of(topic.name) or ZERO_UUID
    if not topic.name and request.version >= TOPIC_IDS_SINCE:
        code = ErrorCode.UNKNOWN_TOPIC_ID
    elif not request.may(Operation.DESCRIBE, topic_resource(topic.name)):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if code is ErrorCode.NONE:
        return True
    refused.append(
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                for index in topic.partition_indexes
            ],
        )
    )
    return False


def _may_show(services: GroupServices, request: Request, topic: OffsetFetchResponseTopics) -> bool:
    """For requests of all topics: whether the client may see the topic and, if only ids are sent, it has one."""
    if not request.could(Operation.DESCRIBE, topic_resource(topic.name)):
        return False
    if request.version >= TOPIC_IDS_SINCE and topic.topic_id == ZERO_UUID:
        topic.topic_id = services.metadata.image.topics.id_of(topic.name) or ZERO_UUID
        return topic.topic_id != ZERO_UUID
    return True


def _as_before_groups(
    version: int, asked: OffsetFetchRequestGroup, result: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    if result.error_code and version < TOP_LEVEL_ERROR_SINCE:
        # This version has no other field for the error: each partition carries it.
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=result.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    return single_group(result, version)
