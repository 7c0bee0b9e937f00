"""StreamsGroupTopologyDescriptionUpdate (API key 93). A member describes its topology for operators (KIP-1331).

A member sends it if a heartbeat's answer has asked for the description.
"""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class StreamsGroupTopologyDescriptionUpdateRequest(Message, key=93, versions="0", flexible="0+"):
    group_id: str = field("0+")
    member_id: str = field("0+")
    topology_epoch: Int32 = field("0+")
    topology_description: TopologyDescription = field("0+")


class TopologyDescription(Message):
    subtopologies: list[TopologyDescriptionSubtopology] = field("0+")
    global_stores: list[TopologyDescriptionGlobalStore] = field("0+")


class TopologyDescriptionSubtopology(Message):
    subtopology_id: str = field("0+")
    nodes: list[TopologyDescriptionNode] = field("0+")


class TopologyDescriptionGlobalStore(Message):
    source: TopologyDescriptionNode = field("0+")
    processor: TopologyDescriptionNode = field("0+")


class TopologyDescriptionNode(Message):
    name: str = field("0+")
    # 1 is a source, 2 a processor, 3 a sink.
    node_type: Int8 = field("0+")
    source_topics: list[str] = field("0+")
    sink_topic: str | None = field("0+", nullable="0+", default=None)
    stores: list[str] = field("0+")
    successors: list[str] = field("0+")


class StreamsGroupTopologyDescriptionUpdateResponse(Message, key=93, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
