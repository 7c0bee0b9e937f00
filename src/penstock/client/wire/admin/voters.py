"""The voters of the metadata quorum: who they are, and changes of them (KIP-853)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.model.ids import Uuid, uuid_text
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from penstock.protocol.messages.quorum_structs import Listener
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


@dataclass(frozen=True, slots=True)
class QuorumMember:
    node_id: int
    directory_id: Uuid  # zero for voters of kraft.version 0
    log_end_offset: int
    endpoints: Mapping[str, tuple[str, int]]  # by listener; empty for observers


@dataclass(frozen=True, slots=True)
class QuorumMembers:
    leader_id: int
    high_watermark: int
    voters: tuple[QuorumMember, ...]
    observers: tuple[QuorumMember, ...]


class Voters:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> QuorumMembers:
        return self._cluster.patiently(self._describe)

    def _describe(self) -> QuorumMembers:
        wanted = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[wanted])
        response = self._cluster.request(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
        raise_for(response.error_code, response.error_message, "cannot describe the quorum")
        (partition,) = response.topics[0].partitions
        raise_for(partition.error_code, partition.error_message, "cannot describe the quorum")
        endpoints = {
            node.node_id: {each.name: (each.host, each.port) for each in node.listeners} for node in response.nodes
        }

        def member(replica: ReplicaState) -> QuorumMember:
            return QuorumMember(
                replica.replica_id,
                replica.replica_directory_id,
                replica.log_end_offset,
                endpoints.get(replica.replica_id, {}),
            )

        return QuorumMembers(
            partition.leader_id,
            partition.high_watermark,
            tuple(map(member, partition.current_voters)),
            tuple(map(member, partition.observers)),
        )

    def add(self, node_id: int, directory_id: Uuid, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Make a controller that follows the quorum a voter of it; committed on return."""
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=int(self._cluster.timeout * 1000),
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[Listener(name=name, host=host, port=port) for name, (host, port) in endpoints.items()],
        )
        response = self._cluster.request(request, AddRaftVoterResponse)
        raise_for(response.error_code, response.error_message, f"cannot add voter {node_id}, {uuid_text(directory_id)}")

    def remove(self, node_id: int, directory_id: Uuid) -> None:
        """Take a vote away; the controller follows the quorum from then on."""
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
        response = self._cluster.request(request, RemoveRaftVoterResponse)
        raise_for(response.error_code, response.error_message, f"cannot remove voter {node_id}")
