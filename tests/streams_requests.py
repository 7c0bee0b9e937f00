"""Topologies and tasks of streams groups as text.

0:a>r/1:<r+c     subtopology 0 reads topic a and writes the repartition topic r, which 1 reads; c is its changelog
<r*4             with four partitions;  & at the end: all inputs of the subtopology are copartitioned
0:0,1/1:2        tasks 0_0, 0_1 and 1_2
"""

from __future__ import annotations

import re

from penstock.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from penstock.protocol.messages.streams_structs import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
)

_SUBTOPOLOGY = re.compile(r"(\w+):([^><+&]*)(?:>([^<+&]*))?(?:<([^+&]*))?(?:\+([^&]*))?(&?)")


def topology(text: str, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=[_subtopology(part) for part in filter(None, text.split("/"))])


def _subtopology(text: str) -> Subtopology:
    found = _SUBTOPOLOGY.fullmatch(text)
    assert found is not None, text
    name, sources, sinks, reads, changelogs, copartitioned = (part or "" for part in found.groups())
    source_topics = list(filter(None, sources.split(",")))
    repartition = [_topic(each) for each in filter(None, reads.split(","))]
    group = CopartitionGroup(
        source_topics=list(range(len(source_topics))), repartition_source_topics=list(range(len(repartition)))
    )
    return Subtopology(
        subtopology_id=name,
        source_topics=source_topics,
        repartition_sink_topics=list(filter(None, sinks.split(","))),
        repartition_source_topics=repartition,
        state_changelog_topics=[_topic(each) for each in filter(None, changelogs.split(","))],
        copartition_groups=[group] if copartitioned else [],
    )


def _topic(text: str) -> TopicInfo:
    name, _, partitions = text.partition("*")
    return TopicInfo(name=name, partitions=int(partitions or 0))


def tasks(text: str | None) -> list[TaskIds] | None:
    if text is None:
        return None
    found = []
    for part in filter(None, text.split("/")):
        name, _, indexes = part.partition(":")
        found.append(TaskIds(subtopology_id=name, partitions=[int(index) for index in indexes.split(",")]))
    return found


def offsets(text: str | None) -> list[TaskOffset] | None:
    """`0:1@12` is task 0_1 at 12."""
    if text is None:
        return None
    found = []
    for part in filter(None, text.split("/")):
        task, _, offset = part.partition("@")
        name, _, index = task.partition(":")
        found.append(TaskOffset(subtopology_id=name, partition=int(index), offset=int(offset)))
    return found


def heartbeat(group: str, member: str, epoch: int, options: dict[str, str]) -> StreamsGroupHeartbeatRequest:
    """A heartbeat. One that joins has everything that it must have, with defaults where no option says otherwise."""
    joins = epoch == 0
    endpoint = options.get("endpoint")
    tags = options.get("tags")
    owned = {role: tasks(options.get(role)) for role in ("active", "standby", "warmup")}
    if joins or any(each is not None for each in owned.values()):
        owned = {role: each or [] for role, each in owned.items()}
    sent = options.get("topology")
    host, _, port = (endpoint or "").partition(":")
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        endpoint_information_epoch=int(options.get("endpoints", "0")),
        instance_id=options.get("instance"),
        rack_id=options.get("rack"),
        rebalance_timeout_ms=int(options.get("rebalance", "20000" if joins else "-1")),
        topology=None if sent is None else topology(sent, int(options.get("topology_epoch", "0"))),
        active_tasks=owned["active"],
        standby_tasks=owned["standby"],
        warmup_tasks=owned["warmup"],
        process_id=options.get("process", f"p-{member}" if joins else None),
        user_endpoint=None if endpoint is None else Endpoint(host=host, port=int(port)),
        client_tags=None
        if tags is None
        else [KeyValue(key=pair.split(":")[0], value=pair.split(":")[1]) for pair in tags.split(",")],
        task_offsets=offsets(options.get("offsets")),
        task_end_offsets=offsets(options.get("ends")),
        shutdown_application="shutdown" in options,
    )
