"""StreamsGroupDescribe (API key 89). The state, the topology and the members of streams groups."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.streams_structs import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from penstock.protocol.primitives import Int8, Int16, Int32


class StreamsGroupDescribeRequest(Message, key=89, versions="0-1", flexible="0+"):
    group_ids: list[str] = field("0+")
    include_authorized_operations: bool = field("0+")
    include_topology_description: bool = field("1+")


class StreamsGroupDescribeResponse(Message, key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    groups: list[DescribedGroup] = field("0+")


class DescribedGroup(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+")
    group_epoch: Int32 = field("0+")
    assignment_epoch: Int32 = field("0+")
    topology: Topology | None = field("0+", nullable="0+", default=None)
    members: list[Member] = field("0+")
    authorized_operations: Int32 = field("0+", default=-2147483648)
    topology_description: TopologyDescription | None = field("1+", nullable="1+", default=None)
    topology_description_status: Int8 = field("1+")
    assignor_name: str | None = field("1+", nullable="1+", default=None, ignorable=True)


class Topology(Message):
    epoch: Int32 = field("0+")
    subtopologies: list[Subtopology] | None = field("0+", nullable="0+", default=None)


class Subtopology(Message):
    """With numbers of partitions, where the topics exist."""

    subtopology_id: str = field("0+")
    source_topics: list[str] = field("0+")
    repartition_sink_topics: list[str] = field("0+")
    state_changelog_topics: list[TopicInfo] = field("0+")
    repartition_source_topics: list[TopicInfo] = field("0+")


class Member(Message):
    member_id: str = field("0+")
    member_epoch: Int32 = field("0+")
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    client_id: str = field("0+")
    client_host: str = field("0+")
    topology_epoch: Int32 = field("0+")
    process_id: str = field("0+")
    user_endpoint: Endpoint | None = field("0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = field("0+")
    task_offsets: list[TaskOffset] = field("0+")
    task_end_offsets: list[TaskOffset] = field("0+")
    assignment: Assignment = field("0+")
    target_assignment: Assignment = field("0+")
    is_classic: bool = field("0+")


class Assignment(Message):
    active_tasks: list[TaskIds] = field("0+")
    standby_tasks: list[TaskIds] = field("0+")
    warmup_tasks: list[TaskIds] = field("0+")


class TopologyDescription(Message):
    """What a plug-in of the broker stores about the topology (KIP-1331)."""

    subtopologies: list[TopologyDescriptionSubtopology] = field("1+")
    global_stores: list[TopologyDescriptionGlobalStore] = field("1+")


class TopologyDescriptionSubtopology(Message):
    subtopology_id: str = field("1+")
    nodes: list[TopologyDescriptionNode] = field("1+")


class TopologyDescriptionGlobalStore(Message):
    source: TopologyDescriptionNode = field("1+")
    processor: TopologyDescriptionNode = field("1+")


class TopologyDescriptionNode(Message):
    name: str = field("1+")
    node_type: Int8 = field("1+")
    source_topics: list[str] = field("1+")
    sink_topic: str | None = field("1+", nullable="1+", default=None)
    stores: list[str] = field("1+")
    successors: list[str] = field("1+")
