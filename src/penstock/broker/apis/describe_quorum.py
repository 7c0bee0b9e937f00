"""DescribeQuorum: who leads the metadata quorum, and how far its voters are.

Versions 0-2: 2 adds directories and the voters' addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.quorum import QuorumDescription
from penstock.broker.request import Request
from penstock.model.errors import ErrorCode
from penstock.model.ids import METADATA_TOPIC, ZERO_UUID
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    ReplicaState,
)
from penstock.protocol.messages.describe_quorum import Node as QuorumNode
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.DESCRIBE_QUORUM
VERSIONS = (0, 2)

DIRECTORIES_SINCE = 2


def handle(node: Node, request: Request, message: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not request.may(Operation.DESCRIBE, CLUSTER):
        return DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    quorum = node.quorum.describe()
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
            if topic.topic_name == METADATA_TOPIC and partition.partition_index == 0:
                result.partitions.append(_describe(quorum, node.clock.now_ms(), with_directories))
            else:
                result.partitions.append(
                    DescribeQuorumResponsePartitionData(
                        partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                )
        response.topics.append(result)
    return response


def _describe(quorum: QuorumDescription, now_ms: int, with_directories: bool) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[
            ReplicaState(
                replica_id=voter.key.node_id,
                replica_directory_id=voter.key.directory_id if with_directories else ZERO_UUID,
                log_end_offset=quorum.log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
            for voter in quorum.voters
        ],
    )
