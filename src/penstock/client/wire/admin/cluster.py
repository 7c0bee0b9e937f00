"""The cluster as a whole: brokers, the controller quorum, partitions that need attention."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    broker_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    node_id: int
    log_end_offset: int
    last_caught_up_ms: int  # -1: unknown


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    quorum: QuorumDescription | None  # None from clusters that do not report it, or not to this user
    topics: int
    partitions: int
    under_replicated: tuple[TopicPartition, ...]
    offline: tuple[TopicPartition, ...]  # without a leader


class ClusterGroup:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> ClusterDescription:
        metadata = self._cluster.metadata(None)
        brokers = [BrokerDescription(b.node_id, b.host, b.port, b.rack) for b in metadata.brokers]
        if self._cluster.supports(ApiKey.DESCRIBE_CLUSTER):
            fenced = self._cluster.version(ApiKey.DESCRIBE_CLUSTER) >= 2
            request = DescribeClusterRequest(include_fenced_brokers=fenced)
            answer = self._cluster.request(request, DescribeClusterResponse)
            raise_for(answer.error_code, answer.error_message, "cannot describe the cluster")
            brokers = [BrokerDescription(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in answer.brokers]
        partitions = [(topic.name or "", partition) for topic in metadata.topics for partition in topic.partitions]
        return ClusterDescription(
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id,
            brokers=tuple(sorted(brokers, key=lambda broker: broker.broker_id)),
            quorum=self._quorum_if_allowed(),
            topics=len(metadata.topics),
            partitions=len(partitions),
            under_replicated=tuple(
                sorted(
                    TopicPartition(name, partition.partition_index)
                    for name, partition in partitions
                    if len(partition.isr_nodes) < len(partition.replica_nodes)
                )
            ),
            offline=tuple(
                sorted(
                    TopicPartition(name, partition.partition_index)
                    for name, partition in partitions
                    if partition.leader_id < 0
                )
            ),
        )

    def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker that will not return. Its replicas stay assigned to it until they are reassigned."""
        response = self._cluster.request(UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)
        raise_for(response.error_code, response.error_message, f"cannot unregister broker {broker_id}")

    def unregister_controller(self, controller_id: int) -> None:
        """Remove a controller that will not return, and no longer votes."""
        request = UnregisterControllerRequest(controller_id=controller_id)
        response = self._cluster.request(request, UnregisterControllerResponse)
        raise_for(response.error_code, response.error_message, f"cannot unregister controller {controller_id}")

    def _quorum_if_allowed(self) -> QuorumDescription | None:
        """A user who may use topics only still sees the brokers."""
        try:
            return self.quorum()
        except KafkaError as error:
            if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            return None

    def quorum(self) -> QuorumDescription | None:
        """Describe the controller quorum; None from clusters that do not report it."""
        if not self._cluster.supports(ApiKey.DESCRIBE_QUORUM):
            return None
        topic = DescribeQuorumRequestTopicData(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        request = DescribeQuorumRequest(topics=[topic])
        return self._cluster.patiently(lambda: self._describe_quorum(request))

    def _describe_quorum(self, request: DescribeQuorumRequest) -> QuorumDescription:
        response = self._cluster.request(request, DescribeQuorumResponse)
        raise_for(response.error_code, response.error_message, "cannot describe the quorum")
        (partition,) = response.topics[0].partitions
        raise_for(partition.error_code, partition.error_message, "cannot describe the quorum")
        return QuorumDescription(
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            high_watermark=partition.high_watermark,
            voters=tuple(
                QuorumReplica(voter.replica_id, voter.log_end_offset, voter.last_caught_up_timestamp)
                for voter in partition.current_voters
            ),
            observers=tuple(
                QuorumReplica(observer.replica_id, observer.log_end_offset, observer.last_caught_up_timestamp)
                for observer in partition.observers
            ),
        )
