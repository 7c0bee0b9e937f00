"""A request of each API of the coordinators, in any version: what a client without a group or a transaction may ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from narrowing import expect
from penstock.model.ids import ZERO_UUID
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    add_partitions_to_txn,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    read_share_group_state,
    read_share_group_state_summary,
    txn_offset_commit,
    write_share_group_state,
    write_txn_markers,
)
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from penstock.protocol.messages.share_fetch import ShareFetchRequest
from penstock.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest

GROUP = "every-version"
NOT_THERE = "not-there"


class RequestTarget(Protocol):
    topic: str
    topic_id: bytes


def offset_commit_request(target: RequestTarget, version: int) -> Message:
    def topic(name: str, topic_id: bytes, *partitions: int) -> offset_commit.OffsetCommitRequestTopic:
        return offset_commit.OffsetCommitRequestTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata="m"
                )
                for index in partitions
            ],
        )

    return offset_commit.OffsetCommitRequest(
        group_id=GROUP, topics=[topic(target.topic, target.topic_id, 0, 99), topic(NOT_THERE, b"\x77" * 16, 0)]
    )


def share_state_request(module: Any, name: str, target: RequestTarget, version: int) -> Message:
    """For a topic that does not exist."""
    topic = getattr(module, f"{name}Data")(topic_id=b"\x77" * 16, partitions=[module.Partition()])
    request = getattr(module, f"{name.replace('State', 'ShareGroupState')}Request")(group_id=GROUP, topics=[topic])
    return expect(Message, request)


def offset_fetch_request(target: RequestTarget, version: int) -> Message:
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(name=target.topic, partition_indexes=[0, 99])]
        return offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=topics)
    named = [
        offset_fetch.OffsetFetchRequestTopics(name=target.topic, topic_id=target.topic_id, partition_indexes=[0, 99]),
        offset_fetch.OffsetFetchRequestTopics(name=NOT_THERE, topic_id=ZERO_UUID, partition_indexes=[0]),
    ]
    groups = [
        offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=named),
        offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None),
        offset_fetch.OffsetFetchRequestGroup(group_id=NOT_THERE, topics=None),
    ]
    return offset_fetch.OffsetFetchRequest(groups=groups, require_stable=True)


def leave_group_request(target: RequestTarget, version: int) -> Message:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id=GROUP, member_id="nobody")
    return leave_group.LeaveGroupRequest(group_id=GROUP, members=[leave_group.MemberIdentity(member_id="nobody")])


def add_partitions_request(target: RequestTarget, version: int) -> Message:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=target.topic, partitions=[0])]
    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="nobody", v3_and_below_producer_id=1, v3_and_below_topics=topics
        )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=[
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=1, verify_only=True, topics=topics
            )
            for name in ("nobody", "else")
        ]
    )


def txn_offset_commit_request(target: RequestTarget, version: int) -> Message:
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="nobody",
        group_id=GROUP,
        producer_id=1,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=target.topic,
                topic_id=target.topic_id,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=index, committed_metadata=None)
                    for index in (0, 99)
                ],
            )
        ],
    )


def write_txn_markers_request(target: RequestTarget, version: int) -> Message:
    return write_txn_markers.WriteTxnMarkersRequest(
        markers=[
            write_txn_markers.WritableTxnMarker(
                producer_id=1_000_000 + version,
                topics=[write_txn_markers.WritableTxnMarkerTopic(name=target.topic, partition_indexes=[0, 99])],
            )
        ]
    )


REQUESTS: dict[ApiKey, Callable[[RequestTarget, int], Message]] = {
    ApiKey.OFFSET_COMMIT: offset_commit_request,
    ApiKey.OFFSET_FETCH: offset_fetch_request,
    ApiKey.OFFSET_DELETE: lambda target, version: offset_delete.OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name=target.topic, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=1)]
            )
        ],
    ),
    ApiKey.JOIN_GROUP: lambda target, version: JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    ),
    ApiKey.SYNC_GROUP: lambda target, version: SyncGroupRequest(group_id=GROUP, member_id="nobody", generation_id=1),
    ApiKey.HEARTBEAT: lambda target, version: HeartbeatRequest(group_id=GROUP, member_id="nobody", generation_id=1),
    ApiKey.LEAVE_GROUP: leave_group_request,
    ApiKey.LIST_GROUPS: lambda target, version: ListGroupsRequest(),
    ApiKey.DESCRIBE_GROUPS: lambda target, version: DescribeGroupsRequest(
        groups=[GROUP, NOT_THERE], include_authorized_operations=version >= 3
    ),
    ApiKey.DELETE_GROUPS: lambda target, version: DeleteGroupsRequest(groups_names=[NOT_THERE]),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda target, version: ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="nobody", member_epoch=1
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda target, version: ConsumerGroupDescribeRequest(group_ids=[GROUP, NOT_THERE]),
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_request,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda target, version: AddOffsetsToTxnRequest(
        transactional_id="nobody", producer_id=1, group_id=GROUP
    ),
    ApiKey.END_TXN: lambda target, version: EndTxnRequest(transactional_id="nobody", producer_id=1),
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers_request,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit_request,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda target, version: DescribeTransactionsRequest(transactional_ids=["nobody"]),
    ApiKey.LIST_TRANSACTIONS: lambda target, version: ListTransactionsRequest(),
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda target, version: ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="nobody", member_epoch=1
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: lambda target, version: ShareGroupDescribeRequest(group_ids=[GROUP, NOT_THERE]),
    ApiKey.STREAMS_GROUP_HEARTBEAT: lambda target, version: StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id="nobody", member_epoch=1
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: lambda target, version: StreamsGroupDescribeRequest(group_ids=[GROUP, NOT_THERE]),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: lambda target, version: (
        StreamsGroupTopologyDescriptionUpdateRequest(group_id=GROUP, member_id="nobody")
    ),
    ApiKey.SHARE_FETCH: lambda target, version: ShareFetchRequest(
        group_id=GROUP, member_id="nobody", share_session_epoch=5
    ),
    ApiKey.SHARE_ACKNOWLEDGE: lambda target, version: ShareAcknowledgeRequest(
        group_id=GROUP, member_id="nobody", share_session_epoch=5
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: partial(share_state_request, initialize_share_group_state, "InitializeState"),
    ApiKey.READ_SHARE_GROUP_STATE: partial(share_state_request, read_share_group_state, "ReadState"),
    ApiKey.WRITE_SHARE_GROUP_STATE: partial(share_state_request, write_share_group_state, "WriteState"),
    ApiKey.DELETE_SHARE_GROUP_STATE: partial(share_state_request, delete_share_group_state, "DeleteState"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: partial(
        share_state_request, read_share_group_state_summary, "ReadStateSummary"
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda target, version: (
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[
                describe_share_group_offsets.Group(group_id=GROUP, topics=[]),
                describe_share_group_offsets.Group(group_id=GROUP, topics=None),
            ]
        )
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda target, version: AlterShareGroupOffsetsRequest(group_id=GROUP),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda target, version: DeleteShareGroupOffsetsRequest(group_id=NOT_THERE),
}

# The member, the group or the transaction that these are about does not exist.
REFUSED = {
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.DELETE_GROUPS,
    ApiKey.LEAVE_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
}
