"""DescribeQuorum: the leader of the metadata quorum, and the progress of its replicas.

Versions 0-2: 2 adds directories and the voters' addresses.
"""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.metadata.quorum import not_controller
from penstock.broker.metadata.quorum_description import QuorumDescription, ReplicaStatus
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    ReplicaState,
)
from penstock.protocol.messages.describe_quorum import Node as QuorumNode
from penstock.protocol.messages.quorum_structs import Listener
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 2)

DIRECTORIES_SINCE = 2


def handle(services: AdminServices, request: Request, message: DescribeQuorumRequest) -> DescribeQuorumResponse | None:
    if not request.may(Operation.DESCRIBE, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=code, error_message=code.text)
    if services.forwarding.pass_on(
        request, lambda error: DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    ):
        return None
    quorum = services.quorum.describe()
    response = DescribeQuorumResponse()
    with_directories = request.version >= DIRECTORIES_SINCE
    if with_directories:
        response.nodes = [
            QuorumNode(
                node_id=voter.key.node_id,
                listeners=[Listener(name=each.listener, host=each.host, port=each.port) for each in voter.endpoints],
            )
            for voter in quorum.voters
        ]
    for topic in message.topics:
        result = DescribeQuorumResponseTopicData(topic_name=topic.topic_name)
        for partition in topic.partitions:
            if topic.topic_name != METADATA_TOPIC or partition.partition_index != 0:
                described = _refused(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif not services.quorum.is_active:
                described = _refused(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                described = _describe(quorum, with_directories)
            result.partitions.append(described)
        response.topics.append(result)
    if not services.quorum.is_active:
        # For a broker that forwarded the request: another node has the answer.
        request.refuse(request.park(), not_controller(), response)
        return None
    return response


def _refused(index: int, error: ErrorCode) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(partition_index=index, error_code=error)


def _describe(quorum: QuorumDescription, with_directories: bool) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(each, with_directories) for each in quorum.voter_status],
        observers=[_replica(each, with_directories) for each in quorum.observer_status],
    )


def _replica(status: ReplicaStatus, with_directories: bool) -> ReplicaState:
    return ReplicaState(
        replica_id=status.key.node_id,
        replica_directory_id=status.key.directory_id if with_directories else ZERO_UUID,
        log_end_offset=status.log_end_offset,
        last_fetch_timestamp=status.last_fetch_ms,
        last_caught_up_timestamp=status.last_caught_up_ms,
    )
