"""Reassignments: a partition moves to other brokers.

The new replicas are added to the current ones (`adding`), and those to be removed stay meanwhile (`removing`). The new
replicas copy the partition and get in sync. The AlterPartition that brings the last of them in sync removes the old
ones and completes the reassignment (`elections.completed_reassignment`). If nothing has to be copied it completes at
once.

A reassignment can be undone: cancelling it removes the new replicas again. A second reassignment of a moving partition
replaces the first: replicas that only the first one wanted are removed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.controller.elections import RECOVERING, Election, Wanted
from penstock.controller.result import MAX_RECORDS_PER_REQUEST, Result
from penstock.controller.topics import check_assignment
from penstock.controller.view import ClusterView
from penstock.metadata.partition import Partition
from penstock.metadata.topics import Topic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.protocol.messages.metadata_records import PartitionChangeRecord

Replicas = tuple[int, ...]


def alter_partition_reassignments(
    view: ClusterView, request: AlterPartitionReassignmentsRequest
) -> Result[AlterPartitionReassignmentsResponse]:
    """Alter reassignments; each partition is independent."""
    allow_change = request.allow_replication_factor_change
    records: list[Message] = []
    response = AlterPartitionReassignmentsResponse(allow_replication_factor_change=allow_change, error_message=None)
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            results.append(result)
            key = (topic.name, wanted.partition_index)
            try:
                if key in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition is named twice.")
                seen.add(key)
                change = _alter(view, topic.name, wanted, allow_change)
                if change is not None:
                    records.append(change)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    return Result(records, response)


def list_partition_reassignments(
    view: ClusterView, request: ListPartitionReassignmentsRequest
) -> Result[ListPartitionReassignmentsResponse]:
    topics = view.image.topics
    asked: dict[str, list[int]] = {}
    if request.topics is None:
        for topic_id, partition_id in view.index.reassigning:
            asked.setdefault(topics.ids[topic_id].name, []).append(partition_id)
    else:
        asked = {topic.name: topic.partition_indexes for topic in request.topics}
    response = ListPartitionReassignmentsResponse(error_message=None)
    for name, partition_ids in asked.items():
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=partition_id,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for partition_id in partition_ids
            if (partition := topics.partition(name, partition_id)) is not None and partition.reassigning
        ]
        if ongoing:
            response.topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return Result([], response)


def _alter(
    view: ClusterView, name: str, wanted: ReassignablePartition, allow_change: bool
) -> PartitionChangeRecord | None:
    topic = view.image.topics.by_name(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{wanted.partition_index}."
        )
    if wanted.replicas is None:
        return _cancel(view, topic, wanted.partition_index, partition)
    target = tuple(wanted.replicas)
    check_assignment(view.image, target, None)
    if not allow_change:
        # Counted as if the current reassignment were complete.
        current = len(set(partition.replicas) - set(partition.removing_replicas))
        if current != len(target):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {current} to {len(target)}",
            )
    plan = plan_reassignment(partition, target)
    brokers = view.image.brokers
    return view.change(
        topic,
        wanted.partition_index,
        Wanted(
            isr=plan.isr,
            replicas=plan.replicas,
            adding=plan.adding,
            removing=plan.removing,
            directories={
                replica: brokers[replica].default_directory
                for replica in plan.replicas
                if replica not in partition.replicas
            },
        ),
    )


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The initial state of a reassignment."""

    replicas: Replicas
    adding: Replicas
    removing: Replicas
    isr: Replicas


def plan_reassignment(partition: Partition, target: Replicas) -> Reassignment:
    original = original_replicas(partition)
    dropped = {replica for replica in partition.adding_replicas if replica not in target}
    isr = tuple(member for member in partition.isr if member not in dropped)
    knowing = partition.isr or partition.elr or partition.last_known_elr
    if dropped.issuperset(knowing):
        # Only replicas that are to be removed have all committed records: they stay until others are in sync.
        isr = partition.isr
        original = (*original, *knowing)
    removing = tuple(replica for replica in original if replica not in target)
    return Reassignment(
        replicas=(*target, *removing),
        adding=tuple(replica for replica in target if replica not in original),
        removing=removing,
        isr=isr,
    )


def original_replicas(partition: Partition) -> Replicas:
    """The replicas before the reassignment."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)


def _cancel(view: ClusterView, topic: Topic, partition_id: int, partition: Partition) -> PartitionChangeRecord | None:
    if not partition.reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = original_replicas(partition)
    isr = tuple(member for member in partition.isr if member in replicas)
    # A replica that may have all committed records must remain: in sync, or able to lead once it is back.
    clean = bool(isr) or (
        not partition.isr and any(member in replicas for member in partition.elr or partition.last_known_elr)
    )
    unclean_allowed = view.rules(topic).unclean
    if not clean and not (unclean_allowed and replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{partition_id} because it would require an "
            "unclean leader election.",
        )
    if not clean and not view.elr:
        isr = replicas[:1]  # the ISR must not be empty
    return view.change_and_elect(
        topic,
        partition_id,
        Wanted(
            Election.ONLINE if clean else Election.UNCLEAN,
            isr=isr,
            replicas=replicas,
            adding=(),
            removing=(),
            leader_recovery_state=None if clean else RECOVERING,
        ),
    )
