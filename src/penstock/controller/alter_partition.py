"""AlterPartition: the leader of a partition proposes its in-sync replicas.

The leader sees which replicas keep up; the controller sees which brokers are alive. So the leader proposes, and the
controller checks the proposal: it must match the partition's current state (leader epoch, partition epoch), and every
broker in it must be allowed to be in sync: registered, active, and the same incarnation that the leader saw fetching
(KIP-903). Without the last check, a broker that restarted with an empty disk could join because of its previous
process.

A proposal that brings the last replica of a reassignment in sync completes the reassignment. This may move the
leadership away from the sender: the answer is then NEW_LEADER_ELECTED, although the change was made.
"""

from __future__ import annotations

from penstock.controller.elections import RECOVERED, RECOVERING, Wanted
from penstock.controller.result import Result
from penstock.controller.view import ClusterView
from penstock.metadata.image import MetadataImage
from penstock.metadata.partition import NO_LEADER_CHANGE, Partition
from penstock.metadata.topics import Topic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from penstock.protocol.messages.metadata_records import PartitionChangeRecord

# A leader of version 2 sends this for "any incarnation".
_ANY_EPOCH = -1


def alter_partition(view: ClusterView, request: AlterPartitionRequest) -> Result[AlterPartitionResponse]:
    view.check_broker(request.broker_id, request.broker_epoch)
    records: list[Message] = []
    response = AlterPartitionResponse()
    seen: set[tuple[bytes, int]] = set()
    for topic_data in request.topics:
        topic = view.image.topics.by_id(topic_data.topic_id)
        results = []
        for asked in topic_data.partitions:
            key = (topic_data.topic_id, asked.partition_index)
            try:
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                if key in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is named twice.")
                seen.add(key)
                change, partition = _alter(view, request.broker_id, topic, asked)
                if change is not None:
                    records.append(change)
                    if change.leader not in (request.broker_id, NO_LEADER_CHANGE):
                        raise KafkaError(ErrorCode.NEW_LEADER_ELECTED)
                results.append(_described(asked.partition_index, partition))
            except KafkaError as error:
                results.append(
                    AlterPartitionResponsePartitionData(partition_index=asked.partition_index, error_code=error.code)
                )
        response.topics.append(AlterPartitionResponseTopicData(topic_id=topic_data.topic_id, partitions=results))
    return Result(records, response)


def _described(index: int, partition: Partition) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _alter(
    view: ClusterView, broker_id: int, topic: Topic, asked: AlterPartitionRequestPartitionData
) -> tuple[PartitionChangeRecord | None, Partition]:
    """The change, and the partition after it."""
    partition = topic.partitions.get(asked.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    isr = asked.new_isr_with_epochs or [
        BrokerState(broker_id=member, broker_epoch=_ANY_EPOCH) for member in asked.new_isr
    ]
    members = tuple(member.broker_id for member in isr)
    _check_epochs(broker_id, partition, asked)
    _check_proposal(partition, members, asked.leader_recovery_state)
    for member in isr:
        why = ineligible(view.image, partition, member)
        if why is not None:
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {member.broker_id} is {why}.")
    wanted = Wanted(isr=members, leader_recovery_state=asked.leader_recovery_state)
    change = view.change_and_elect(topic, asked.partition_index, wanted)
    return change, partition if change is None else partition.merge(change)


def _check_epochs(broker_id: int, partition: Partition, asked: AlterPartitionRequestPartitionData) -> None:
    """A leader that knows later epochs than the controller: then this controller is no longer the active one."""
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if asked.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only the leader may alter a partition.")
    if asked.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_proposal(partition: Partition, isr: tuple[int, ...], recovery_state: int) -> None:
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The in-sync replicas must be replicas, each once.")
    if partition.leader not in isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The leader must be in sync.")
    if recovery_state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown leader recovery state {recovery_state}.")
    if recovery_state == RECOVERING and len(isr) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "No replica can be in sync with a leader that is still recovering.")
    if recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A leader that has recovered does not go back to recovering.")


def ineligible(image: MetadataImage, partition: Partition, member: BrokerState) -> str | None:
    """The reason why a broker may not be in sync; None if it may."""
    broker = image.brokers.get(member.broker_id)
    if broker is None:
        return "not registered"
    if broker.in_controlled_shutdown:
        return "shutting down"
    if broker.fenced:
        return "fenced"
    if member.broker_epoch not in (_ANY_EPOCH, broker.epoch):
        return f"registered with epoch {broker.epoch}, not {member.broker_epoch}"
    if not broker.has_online(partition.directory_of(member.broker_id)):
        return "without the directory that its replica is in"
    return None
