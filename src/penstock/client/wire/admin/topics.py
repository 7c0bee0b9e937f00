"""Topics: create, list, describe, add partitions, delete, delete records, and the offsets of their partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID, TopicPartition, uuid_text
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

EARLIEST = -2
LATEST = -1

_CREATION_S = 3.0
_RETRY_S = 0.02
_BEING_MADE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: str | None  # None from brokers that have no topic ids
    partitions: int  # -1 if the broker does not report it
    replication_factor: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


Descriptions = list[TopicDescription]  # `list` has another meaning inside the class


class Topics:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic.

        Omitted values are the cluster's defaults. An `assignment` names the replicas of each partition instead.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(assignment or ())
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
        (result,) = self._cluster.request(request, CreateTopicsResponse).topics
        raise_for(result.error_code, result.error_message, f"cannot create topic {name!r}")
        return CreatedTopic(name, _id_text(result.topic_id), result.num_partitions, result.replication_factor)

    def list(self, *, internal: bool = False) -> Descriptions:
        """Return all topics, by name; internal ones only on request."""
        topics = [_described(topic) for topic in self._cluster.topics()]
        return [topic for topic in topics if internal or not topic.internal]

    def describe(self, names: Iterable[str]) -> Descriptions:
        wanted = list(names)
        return [_described(topic) for topic in self._cluster.topics(wanted)] if wanted else []

    def ensure(self, name: str) -> TopicDescription:
        """Return a topic that exists, or that the cluster creates on request (auto.create.topics.enable).

        It is unknown in the first answer, and until the cluster has created it.
        """
        deadline = time.monotonic() + _CREATION_S
        while True:
            (found,) = self._cluster.metadata([name], create=True).topics
            if found.error_code not in _BEING_MADE or time.monotonic() > deadline:
                raise_for(found.error_code, None, f"topic {name!r}")
                return _described(found)
            time.sleep(_RETRY_S)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow to `total` partitions. Keys may then hash to other partitions than before."""
        topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        (result,) = self._cluster.request(request, CreatePartitionsResponse).results
        raise_for(result.error_code, result.error_message, f"cannot add partitions to topic {name!r}")

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(timeout_ms=self._timeout_ms)
        if self._cluster.version(ApiKey.DELETE_TOPICS) >= 6:
            request.topics = [DeleteTopicState(name=name)]
        else:
            request.topic_names = [name]
        (result,) = self._cluster.request(request, DeleteTopicsResponse).responses
        raise_for(result.error_code, result.error_message, f"cannot delete topic {name!r}")

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int = LATEST) -> dict[TopicPartition, int]:
        """Return each partition's first offset at or after a timestamp (ms), EARLIEST or LATEST. -1: none."""
        wanted = list(partitions)
        return self._cluster.patiently(lambda: self._offsets(wanted, timestamp))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete records before an offset (-1: all records so far); return the new first offset of each partition."""
        return self._cluster.patiently(lambda: self._delete_records(before))

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.timeout * 1000)

    def _offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, led in self._cluster.leaders(partitions).items():
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
                )
                for name, indexes in by_topic(led).items()
            ]
            request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=self._timeout_ms)
            for topic in self._cluster.request_broker(leader, request, ListOffsetsResponse).topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    raise_for(result.error_code, None, f"offsets of {partition}")
                    found[partition] = result.offset
        return found

    def _delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        first: dict[TopicPartition, int] = {}
        for leader, led in self._cluster.leaders(before).items():
            topics = [
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=before[TopicPartition(name, index)])
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(led).items()
            ]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=self._timeout_ms)
            for topic in self._cluster.request_broker(leader, request, DeleteRecordsResponse).topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    raise_for(result.error_code, None, f"cannot delete records of {partition}")
                    first[partition] = result.low_watermark
        return first


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _id_text(topic_id: bytes) -> str | None:
    return None if topic_id == ZERO_UUID else uuid_text(topic_id)


def _described(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicDescription(
        name=topic.name or "",
        topic_id=_id_text(topic.topic_id),
        internal=topic.is_internal,
        partitions=tuple(map(_described_partition, partitions)),
    )


def _described_partition(partition: MetadataResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        partition=partition.partition_index,
        leader=partition.leader_id if partition.leader_id >= 0 else None,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline_replicas=tuple(partition.offline_replicas),
    )
