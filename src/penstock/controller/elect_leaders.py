"""ElectLeaders: elects the preferred replica, or uncleanly any replica."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.controller.elections import Election, Wanted
from penstock.controller.result import MAX_RECORDS_PER_REQUEST, Result
from penstock.controller.view import ClusterView
from penstock.metadata.partition import NO_LEADER, NO_LEADER_CHANGE, Partition
from penstock.metadata.topics import Topic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def elect_leaders(view: ClusterView, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
    if request.election_type not in (Election.PREFERRED.value, Election.UNCLEAN.value):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    election = Election(request.election_type)
    everything = request.topic_partitions is None
    records: list[Message] = []
    response = ElectLeadersResponse()
    seen: set[tuple[str, int]] = set()
    for name, partition_ids in _asked(view, request):
        topic = view.image.topics.by_name(name)
        results = []
        for partition_id in partition_ids:
            error = ErrorCode.NONE, ""
            try:
                if (name, partition_id) in seen:
                    raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
                seen.add((name, partition_id))
                records.append(_elect(view, name, topic, partition_id, election))
            except KafkaError as refused:
                error = refused.code, refused.message
            # A request for all partitions does not return those that need no election.
            if error[0] is not ErrorCode.ELECTION_NOT_NEEDED or not everything:
                results.append(
                    PartitionResult(partition_id=partition_id, error_code=error[0], error_message=error[1] or None)
                )
        response.replica_election_results.append(ReplicaElectionResult(topic=name, partition_result=results))
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    return Result(records, response)


def _asked(view: ClusterView, request: ElectLeadersRequest) -> Iterator[tuple[str, list[int]]]:
    if request.topic_partitions is not None:
        yield from ((topic.topic, topic.partitions) for topic in request.topic_partitions)
        return
    # Only partitions that could need an election.
    wanted = view.index.not_preferred if request.election_type == Election.PREFERRED.value else view.index.leaderless
    topics: dict[str, list[int]] = {}
    for topic_id, partition_id in wanted:
        topics.setdefault(view.image.topics.ids[topic_id].name, []).append(partition_id)
    yield from ((name, sorted(topics[name])) for name in sorted(topics))


def _elect(view: ClusterView, name: str, topic: Topic | None, partition_id: int, election: Election) -> Message:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(partition_id)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition_id}")
    if not _is_needed(partition, election):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    change = view.change(topic, partition_id, Wanted(election))
    if change is None or change.leader in (NO_LEADER, NO_LEADER_CHANGE):
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election is Election.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return change


def _is_needed(partition: Partition, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER
