"""What clients ask coordinators of groups and transactions, by hand; and the errors in the answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    add_partitions_to_txn,
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.produce import ProduceRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from waiting import wait_until
from wire import Wire, batch, create_topic, list_offset, produce_request

GROUP, TRANSACTION = 0, 1
NO_TOPICS = bytes(6) + b"\xff" * 4
"""A subscription of version 0: to nothing, and no data of the user."""

NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)

Place = tuple[str, int]
PlaceAndOffset = tuple[str, int, int]


def patiently(wire: Wire, message: Message, version: int) -> Any:
    """The answer once coordinators are at work, and done with what went before."""

    def answer() -> Any:
        found = wire.ask(message, version)
        return None if found.error_code in NOT_YET else found

    return wait_until(answer, f"an answer to {message}")


def find_coordinators(wire: Wire) -> None:
    """The first question makes the topic that the coordinators write to."""
    for kind in (GROUP, TRANSACTION):
        answer = patiently(wire, FindCoordinatorRequest(key_type=kind, key="anything"), 3)
        assert answer.error_code == ErrorCode.NONE, answer


def new_topic(wire: Wire, name: str) -> str:
    """With two partitions. Kafka answers before their leader has heard of them."""
    create_topic(wire, name, partitions=2)
    wait_until(lambda: not list_offset(wire, name, -1).error_code)
    return name


def by_topic(places: tuple[tuple[Any, ...], ...]) -> dict[str, list[tuple[Any, ...]]]:
    topics: dict[str, list[tuple[Any, ...]]] = {}
    for topic, *rest in places:
        topics.setdefault(topic, []).append(tuple(rest))
    return topics


def partition_errors(topics: Any) -> dict[Place, ErrorCode]:
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code) for topic in topics for each in topic.partitions
    }


# -- groups


def join(
    group: str, member_id: str = "", *, protocols: tuple[str, ...] = ("range",), **fields: Any
) -> JoinGroupRequest:
    fields = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer", **fields}
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=NO_TOPICS) for name in protocols],
        **fields,
    )


def sync(group: str, member_id: str, generation: int, **fields: Any) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        member_id=member_id,
        generation_id=generation,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"assignment")],
        **fields,
    )


def only_member(wire: Wire, group: str, **fields: Any) -> Any:
    """The answer to the joining of a classic group's only member, who has its assignment."""
    asked = join(group, **fields)
    answer = wire.ask(asked, 5)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        asked.member_id = answer.member_id
        answer = wire.ask(asked, 5)
    assert answer.error_code == ErrorCode.NONE, answer
    instance = fields.get("group_instance_id")
    synced = wire.ask(sync(group, answer.member_id, answer.generation_id, group_instance_id=instance), 3)
    assert synced.error_code == ErrorCode.NONE, synced
    return answer


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group,
        members=[MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members],
    )


def consumer_heartbeat(group: str, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)


def consumer_join(group: str, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    fields = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
        **fields,
    }
    return consumer_heartbeat(group, member_id, 0, **fields)


def commit(
    wire: Wire,
    group: str,
    *offsets: PlaceAndOffset,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    version: int = 9,
) -> dict[Place, ErrorCode]:
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                topic_id=ZERO_UUID,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in places
                ],
            )
            for topic, places in by_topic(offsets).items()
        ],
    )
    return partition_errors(wire.ask(request, version).topics)


def committed(
    wire: Wire, group: str, *places: Place, member_id: str | None = None, epoch: int = -1, require_stable: bool = False
) -> Any:
    """The group's part of the answer."""
    topics = [
        offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=[index for (index,) in partitions])
        for topic, partitions in by_topic(places).items()
    ]
    asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=topics)
    request = offset_fetch.OffsetFetchRequest(groups=[asked], require_stable=require_stable)
    (answer,) = wire.ask(request, 9).groups
    return answer


def delete_offsets(group: str, *places: Place) -> offset_delete.OffsetDeleteRequest:
    return offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=index) for (index,) in indexes],
            )
            for topic, indexes in by_topic(places).items()
        ],
    )


# -- transactions


class Producer:
    """A transactional producer: its id, and the identity it was given."""

    def __init__(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self.transactional_id = transactional_id
        self.id = producer_id
        self.epoch = epoch

    def other(self, *, transactional_id: str | None = None, producer_id: int | None = None, epoch: int = 0) -> Producer:
        """As it would ask with something else in place of its own; `epoch` is added."""
        return Producer(
            self.transactional_id if transactional_id is None else transactional_id,
            self.id if producer_id is None else producer_id,
            self.epoch + epoch,
        )

    def add_partitions(self, wire: Wire, *places: Place, version: int = 3) -> dict[Place, ErrorCode]:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[index for (index,) in indexes])
                for topic, indexes in by_topic(places).items()
            ],
        )
        return {
            (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in wire.ask(request, version).results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }

    def produce(self, topic: str, sequence: int, *, partition: int = 0, **fields: Any) -> ProduceRequest:
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, "transactional": True, **fields}
        request = produce_request(topic, batch("value", base_sequence=sequence, **fields), partition=partition)
        request.transactional_id = self.transactional_id
        return request

    def commit_offsets(
        self,
        wire: Wire,
        group: str,
        *offsets: PlaceAndOffset,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str = "",
        version: int = 5,
    ) -> dict[Place, ErrorCode]:
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=metadata
                        )
                        for index, offset in places
                    ],
                )
                for topic, places in by_topic(offsets).items()
            ],
        )
        return partition_errors(wire.ask(request, version).topics)

    def commit_offsets_by_id(
        self,
        wire: Wire,
        group: str,
        topic_id: bytes,
        partitions: Iterable[int],
        *,
        member_id: str = "",
        epoch: int = -1,
    ) -> txn_offset_commit.TxnOffsetCommitResponseTopic:
        commits = [
            txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=""
            )
            for index in partitions
        ]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=commits)],
        )
        (answer,) = wire.ask(request, 6).topics
        assert isinstance(answer, txn_offset_commit.TxnOffsetCommitResponseTopic)
        return answer

    def end(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )


def new_producer(wire: Wire, transactional_id: str, *, version: int = 5, timeout_ms: int = 60_000) -> Producer:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = patiently(wire, request, version)
    assert answer.error_code == ErrorCode.NONE, answer
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)
