"""Partition reassignments: begin, cancel and list moves of partitions to other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_NOT_NOW = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class Reassignment:
    topic: str
    partition: int
    replicas: tuple[int, ...]  # all brokers that have a replica during the move
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Reassignments:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def begin(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Move each partition to these brokers, the preferred leader first.

        It is done when `list` no longer has them.
        """
        for partition, code, message in self._alter(targets):
            raise_for(code, message, f"cannot reassign {partition}")

    def cancel(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Cancel the reassignment of partitions; return those that were being moved."""
        cancelled = []
        for partition, code, message in self._alter(dict.fromkeys(partitions)):
            if code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                raise_for(code, message, f"cannot cancel the reassignment of {partition}")
                cancelled.append(partition)
        return cancelled

    def elect_preferred(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the first replica of each partition lead. One that is not in sync yet is passed over."""
        topics: dict[str, TopicPartitions] = {}
        for name, index in partitions:
            topics.setdefault(name, TopicPartitions(topic=name)).partitions.append(index)
        if not topics:
            return
        request = ElectLeadersRequest(topic_partitions=[*topics.values()], timeout_ms=int(self._cluster.timeout * 1000))
        response = self._cluster.request(request, ElectLeadersResponse)
        raise_for(response.error_code, None, "cannot elect preferred leaders")
        for answered in response.replica_election_results:
            for result in answered.partition_result:
                if result.error_code not in _NOT_NOW:
                    what = f"cannot elect the preferred leader of {answered.topic}-{result.partition_id}"
                    raise_for(result.error_code, result.error_message, what)

    def list(self) -> list[Reassignment]:
        request = ListPartitionReassignmentsRequest(timeout_ms=int(self._cluster.timeout * 1000), topics=None)
        response = self._cluster.request(request, ListPartitionReassignmentsResponse)
        raise_for(response.error_code, response.error_message, "cannot list reassignments")
        found = [
            Reassignment(
                topic.name,
                partition.partition_index,
                tuple(partition.replicas),
                tuple(partition.adding_replicas),
                tuple(partition.removing_replicas),
            )
            for topic in response.topics
            for partition in topic.partitions
        ]
        return sorted(found, key=lambda each: (each.topic, each.partition))

    def _alter(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Iterable[tuple[TopicPartition, int, str | None]]:
        topics: dict[str, ReassignableTopic] = {}
        for (name, index), replicas in targets.items():
            topic = topics.setdefault(name, ReassignableTopic(name=name))
            topic.partitions.append(
                ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=int(self._cluster.timeout * 1000), topics=list(topics.values())
        )
        response = self._cluster.request(request, AlterPartitionReassignmentsResponse)
        raise_for(response.error_code, response.error_message, "cannot alter reassignments")
        for answered in response.responses:
            for result in answered.partitions:
                yield TopicPartition(answered.name, result.partition_index), result.error_code, result.error_message
