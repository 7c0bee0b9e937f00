"""Where the instances of an application answer queries about its state, and which partitions each has."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.groups.streams_member import StreamsMember
from penstock.groups.streams_tasks import Task, by_subtopology
from penstock.groups.streams_topology import ConfiguredTopology
from penstock.groups.topics import TopicsView
from penstock.protocol.messages.streams_group_heartbeat import EndpointToPartitions, TopicPartition
from penstock.protocol.messages.streams_structs import Endpoint


def partitions_by_endpoint(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, topics: TopicsView
) -> list[EndpointToPartitions]:
    """Return one entry for each member that has an endpoint. Warm-ups count as standbys, which they are for clients."""
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.endpoint.host, port=member.endpoint.port),
            active_partitions=_inputs_of(member.assigned.active, configured, topics),
            standby_partitions=_inputs_of(member.assigned.standby | member.assigned.warmup, configured, topics),
        )
        for member in members
        if member.endpoint is not None
    ]


def _inputs_of(tasks: Iterable[Task], configured: ConfiguredTopology, topics: TopicsView) -> list[TopicPartition]:
    """Return the input of tasks. A topic with fewer partitions than its subtopology has tasks is no input of the last
    ones."""
    found = []
    for name, indexes in by_subtopology(tasks).items():
        subtopology = (configured.subtopologies or {}).get(name)
        for topic in () if subtopology is None else subtopology.inputs:
            partitions = [index for index in indexes if index < topics.partition_count(topic)]
            if partitions:
                found.append(TopicPartition(topic=topic, partitions=partitions))
    return found
