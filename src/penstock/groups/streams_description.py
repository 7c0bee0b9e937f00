"""StreamsGroupDescribe: a streams group, its topology and the tasks of its members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.groups.state import GroupState
from penstock.groups.streams_assignor import NAME
from penstock.groups.streams_group import StreamsGroup, TaskOffsets
from penstock.groups.streams_heartbeat import streams_group_or_error
from penstock.groups.streams_member import StreamsMember
from penstock.groups.streams_tasks import Task, TaskSets, ids_of
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    Subtopology,
    Topology,
)
from penstock.protocol.messages.streams_structs import Endpoint, KeyValue, TaskOffset, TopicInfo


def describe_streams(state: GroupState, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = streams_group_or_error(state, group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
        assignor_name=NAME,
    )


def _topology(group: StreamsGroup) -> Topology:
    """The topology, with numbers of partitions if its topics exist."""
    if group.topology is None:
        return Topology(epoch=-1)
    configured = group.configured
    partitions = configured.partitions if configured is not None and configured.is_ready else {}
    return Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                state_changelog_topics=_topics(each.state_changelog_topics, partitions),
                repartition_source_topics=_topics(each.repartition_source_topics, partitions),
            )
            for each in group.topology.subtopologies
        ],
    )


def _topics(topics: Iterable[TopicInfo], partitions: Mapping[str, int]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=partitions.get(topic.name, topic.partitions),
            replication_factor=topic.replication_factor,
            topic_configs=topic.topic_configs,
        )
        for topic in sorted(topics, key=lambda each: each.name)
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    reported = group.task_offsets.get(member.member_id, TaskOffsets())
    endpoint = member.endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.tags],
        task_offsets=_offsets(reported.offsets),
        task_end_offsets=_offsets(reported.end_offsets),
        assignment=_assignment(member.assigned.sets),
        target_assignment=_assignment(group.target.get(member.member_id, TaskSets())),
    )


def _assignment(tasks: TaskSets) -> Assignment:
    return Assignment(
        active_tasks=ids_of(tasks.active), standby_tasks=ids_of(tasks.standby), warmup_tasks=ids_of(tasks.warmup)
    )


def _offsets(offsets: Mapping[Task, int]) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=task.subtopology, partition=task.partition, offset=offsets[task])
        for task in sorted(offsets)
    ]
