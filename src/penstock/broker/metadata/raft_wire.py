"""Converts the quorum's messages between Kafka's wire format and the types of `raft/messages.py`.

Kafka's messages can name many topics and partitions; here there is one, `__cluster_metadata-0`. A message that lacks
it, or names another, is refused as a whole. Endpoints of leaders are sent without the name of their listener: they
belong to the listener that received the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID
from penstock.model.topics import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.protocol.apis import API
from penstock.protocol.declaration import Message
from penstock.protocol.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from penstock.protocol.messages.quorum_structs import (
    KRaftVersionFeature,
    Listener,
    NodeEndpoint,
    PartitionAnswer,
    TopicAnswer,
)
from penstock.raft import messages as raft
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.voters import ReplicaKey, VoterEndpoint

_KRAFT_VERSION: Final = "kraft.version"

EpochAnswer = TypeVar("EpochAnswer", raft.BeginQuorumEpochAnswer, raft.EndQuorumEpochAnswer)


def _refused(error: ErrorCode) -> KafkaError:
    return KafkaError(error, "The request is not about the one partition of the metadata log.")


def _only(topics: Sequence[Any], name_of: Callable[[Any], object], expected: object) -> Any:
    """The single partition of the single topic."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise _refused(ErrorCode.INVALID_REQUEST)
    (topic,) = topics
    (partition,) = topic.partitions
    index = partition.partition if hasattr(partition, "partition") else getattr(partition, "partition_index", None)
    if index is None:
        index = partition.index
    if name_of(topic) != expected or index != 0:
        raise _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return partition


def _named(topics: Sequence[Any]) -> Any:
    return _only(topics, lambda topic: topic.topic_name, METADATA_TOPIC)


def _is_metadata_topic(topic: Any) -> bool:
    """Of a Fetch: versions below 13 have the name, later ones the id; the other field has its default."""
    return bool(topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID)


def _voter(node_id: int, directory_id: bytes) -> ReplicaKey | None:
    return None if node_id < 0 else ReplicaKey(node_id, directory_id)


def _endpoints(listeners: Sequence[Any]) -> raft.Endpoints:
    return tuple(VoterEndpoint(listener.name, listener.host, listener.port) for listener in listeners)


# -- incoming requests -----------------------------------------------------------------------------------------------


def request_from_wire(message: Message) -> raft.Request:
    """Raises KafkaError for a request that is not about the metadata log."""
    return _REQUESTS_FROM[type(message)](message)


def _vote_from(message: vote.VoteRequest) -> raft.Vote:
    partition = _named(message.topics)
    return raft.Vote(
        cluster_id=message.cluster_id,
        voter=_voter(message.voter_id, partition.voter_directory_id),
        candidate=ReplicaKey(partition.replica_id, partition.replica_directory_id),
        epoch=partition.replica_epoch,
        last_epoch=partition.last_offset_epoch,
        last_offset=partition.last_offset,
        pre_vote=partition.pre_vote,
    )


def _begin_from(message: begin_quorum_epoch.BeginQuorumEpochRequest) -> raft.BeginQuorumEpoch:
    partition = _named(message.topics)
    hint = raft.LeaderHint(partition.leader_epoch, partition.leader_id, _endpoints(message.leader_endpoints))
    return raft.BeginQuorumEpoch(
        cluster_id=message.cluster_id, voter=_voter(message.voter_id, partition.voter_directory_id), leader=hint
    )


def _end_from(message: end_quorum_epoch.EndQuorumEpochRequest) -> raft.EndQuorumEpoch:
    partition = _named(message.topics)
    successors = [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    successors = successors or [ReplicaKey(node_id) for node_id in partition.preferred_successors]
    return raft.EndQuorumEpoch(
        cluster_id=message.cluster_id,
        leader=raft.LeaderHint(partition.leader_epoch, partition.leader_id, _endpoints(message.leader_endpoints)),
        preferred_successors=tuple(successors),
    )


def _fetch_from(message: fetch.FetchRequest) -> raft.Fetch:
    partition = _only(message.topics, _is_metadata_topic, True)
    state = message.replica_state
    return raft.Fetch(
        cluster_id=message.cluster_id,
        replica=ReplicaKey(message.replica_id if state is None else state.replica_id, partition.replica_directory_id),
        leader_epoch=partition.current_leader_epoch,
        offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        high_watermark=partition.high_watermark,
        max_wait_ms=message.max_wait_ms,
        max_bytes=max(1, min(message.max_bytes, partition.partition_max_bytes or message.max_bytes)),
    )


def _fetch_snapshot_from(message: fetch_snapshot.FetchSnapshotRequest) -> raft.FetchSnapshot:
    partition = _only(message.topics, lambda topic: topic.name, METADATA_TOPIC)
    return raft.FetchSnapshot(
        cluster_id=message.cluster_id,
        replica=ReplicaKey(message.replica_id, partition.replica_directory_id),
        leader_epoch=partition.current_leader_epoch,
        snapshot=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        position=partition.position,
        max_bytes=message.max_bytes,
    )


def _add_from(message: add_raft_voter.AddRaftVoterRequest) -> raft.AddVoter:
    return raft.AddVoter(
        cluster_id=message.cluster_id,
        voter=ReplicaKey(message.voter_id, message.voter_directory_id),
        endpoints=_endpoints(message.listeners),
        ack_when_committed=message.ack_when_committed,
    )


def _remove_from(message: remove_raft_voter.RemoveRaftVoterRequest) -> raft.RemoveVoter:
    return raft.RemoveVoter(
        cluster_id=message.cluster_id, voter=ReplicaKey(message.voter_id, message.voter_directory_id)
    )


def _update_from(message: update_raft_voter.UpdateRaftVoterRequest) -> raft.UpdateVoter:
    versions = message.kraft_version_feature
    return raft.UpdateVoter(
        cluster_id=message.cluster_id,
        leader_epoch=message.current_leader_epoch,
        voter=ReplicaKey(message.voter_id, message.voter_directory_id),
        endpoints=_endpoints(message.listeners),
        kraft_versions=(versions.min_supported_version, versions.max_supported_version),
    )


_REQUESTS_FROM: Final[dict[type[Message], Callable[[Any], raft.Request]]] = {
    vote.VoteRequest: _vote_from,
    begin_quorum_epoch.BeginQuorumEpochRequest: _begin_from,
    end_quorum_epoch.EndQuorumEpochRequest: _end_from,
    fetch.FetchRequest: _fetch_from,
    fetch_snapshot.FetchSnapshotRequest: _fetch_snapshot_from,
    add_raft_voter.AddRaftVoterRequest: _add_from,
    remove_raft_voter.RemoveRaftVoterRequest: _remove_from,
    update_raft_voter.UpdateRaftVoterRequest: _update_from,
}


# -- outgoing answers ------------------------------------------------------------------------------------------------


def answer_to_wire(message: Message, answer: Any, listener: str) -> Message:
    """The response to `message`, which arrived on `listener`."""
    return _ANSWERS_TO[type(message)](answer, listener)


def refusal_to_wire(message: Message, error: ErrorCode, text: str | None = None) -> Message:
    """A response with just an error."""
    response: Any = API[message.__schema__.key or 0].response(error_code=error)
    if text is not None and hasattr(response, "error_message"):
        response.error_message = text
    return cast("Message", response)


def _top(answer: Any) -> ErrorCode | None:
    return ErrorCode.INCONSISTENT_CLUSTER_ID if answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID else None


def _nodes(endpoint_type: type[Any], hint: raft.LeaderHint, listener: str) -> list[Any]:
    return [
        endpoint_type(node_id=hint.leader_id, host=endpoint.host, port=endpoint.port)
        for endpoint in hint.endpoints
        if endpoint.listener == listener and hint.leader_id >= 0
    ]


def _vote_to(answer: raft.VoteAnswer, listener: str) -> Message:
    if (top := _top(answer)) is not None:
        return vote.VoteResponse(error_code=top)
    partition = vote.VoteResponsePartitionData(
        error_code=answer.error,
        leader_id=answer.leader.leader_id,
        leader_epoch=answer.leader.epoch,
        vote_granted=answer.granted,
    )
    topic = vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteResponse(topics=[topic], node_endpoints=_nodes(NodeEndpoint, answer.leader, listener))


def _begin_to(answer: raft.BeginQuorumEpochAnswer, listener: str) -> Message:
    return _epoch_answer(begin_quorum_epoch.BeginQuorumEpochResponse, answer, listener)


def _end_to(answer: raft.EndQuorumEpochAnswer, listener: str) -> Message:
    return _epoch_answer(end_quorum_epoch.EndQuorumEpochResponse, answer, listener)


def _epoch_answer(
    response_type: type[begin_quorum_epoch.BeginQuorumEpochResponse | end_quorum_epoch.EndQuorumEpochResponse],
    answer: raft.BeginQuorumEpochAnswer | raft.EndQuorumEpochAnswer,
    listener: str,
) -> Message:
    if (top := _top(answer)) is not None:
        return response_type(error_code=top)
    partition = PartitionAnswer(
        error_code=answer.error, leader_id=answer.leader.leader_id, leader_epoch=answer.leader.epoch
    )
    topic = TopicAnswer(topic_name=METADATA_TOPIC, partitions=[partition])
    return response_type(topics=[topic], node_endpoints=_nodes(NodeEndpoint, answer.leader, listener))


def _fetch_to(answer: raft.FetchAnswer, listener: str) -> Message:
    if (top := _top(answer)) is not None:
        return fetch.FetchResponse(error_code=top)
    records: Any = answer.records
    partition = fetch.PartitionData(
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader.leader_id, leader_epoch=answer.leader.epoch),
        records=b"" if records is None else records,
    )
    if answer.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(
            epoch=answer.diverging.epoch, end_offset=answer.diverging.offset
        )
    if answer.snapshot is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=answer.snapshot.offset, epoch=answer.snapshot.epoch)
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(responses=[topic], node_endpoints=_nodes(fetch.NodeEndpoint, answer.leader, listener))


def _fetch_snapshot_to(answer: raft.FetchSnapshotAnswer, listener: str) -> Message:
    if (top := _top(answer)) is not None:
        return fetch_snapshot.FetchSnapshotResponse(error_code=top)
    snapshot = answer.snapshot or OffsetAndEpoch(0, 0)
    partition = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        error_code=answer.error,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=answer.leader.leader_id, leader_epoch=answer.leader.epoch
        ),
        size=answer.size,
        position=answer.position,
        unaligned_records=answer.data,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_nodes(NodeEndpoint, answer.leader, listener),
    )


def _add_to(answer: raft.VoterChangeAnswer, listener: str) -> Message:
    return add_raft_voter.AddRaftVoterResponse(error_code=answer.error, error_message=answer.message)


def _remove_to(answer: raft.VoterChangeAnswer, listener: str) -> Message:
    return remove_raft_voter.RemoveRaftVoterResponse(error_code=answer.error, error_message=answer.message)


def _update_to(answer: raft.VoterChangeAnswer, listener: str) -> Message:
    leader = update_raft_voter.CurrentLeader(leader_id=answer.leader.leader_id, leader_epoch=answer.leader.epoch)
    for endpoint in answer.leader.endpoints:
        if endpoint.listener == listener:
            leader.host, leader.port = endpoint.host, endpoint.port
    return update_raft_voter.UpdateRaftVoterResponse(error_code=answer.error, current_leader=leader)


_ANSWERS_TO: Final[dict[type[Message], Callable[[Any, str], Message]]] = {
    vote.VoteRequest: _vote_to,
    begin_quorum_epoch.BeginQuorumEpochRequest: _begin_to,
    end_quorum_epoch.EndQuorumEpochRequest: _end_to,
    fetch.FetchRequest: _fetch_to,
    fetch_snapshot.FetchSnapshotRequest: _fetch_snapshot_to,
    add_raft_voter.AddRaftVoterRequest: _add_to,
    remove_raft_voter.RemoveRaftVoterRequest: _remove_to,
    update_raft_voter.UpdateRaftVoterRequest: _update_to,
}


# -- outgoing requests -----------------------------------------------------------------------------------------------


def request_to_wire(request: raft.Request, timeout_ms: int) -> Message:
    """`timeout_ms`: how long the sender waits, for messages that carry it."""
    match request:
        case raft.Vote():
            return _vote_request(request)
        case raft.BeginQuorumEpoch():
            return _begin_request(request)
        case raft.EndQuorumEpoch():
            return _end_request(request)
        case raft.Fetch():
            return _fetch_request(request)
        case raft.FetchSnapshot():
            return _fetch_snapshot_request(request)
        case raft.AddVoter():
            return add_raft_voter.AddRaftVoterRequest(
                cluster_id=request.cluster_id,
                timeout_ms=timeout_ms,
                voter_id=request.voter.node_id,
                voter_directory_id=request.voter.directory_id,
                listeners=_listeners(request.endpoints),
                ack_when_committed=request.ack_when_committed,
            )
        case raft.RemoveVoter():
            return remove_raft_voter.RemoveRaftVoterRequest(
                cluster_id=request.cluster_id,
                voter_id=request.voter.node_id,
                voter_directory_id=request.voter.directory_id,
            )
        case raft.UpdateVoter():
            lowest, highest = request.kraft_versions
            return update_raft_voter.UpdateRaftVoterRequest(
                cluster_id=request.cluster_id,
                current_leader_epoch=request.leader_epoch,
                voter_id=request.voter.node_id,
                voter_directory_id=request.voter.directory_id,
                listeners=_listeners(request.endpoints),
                kraft_version_feature=KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
            )
        case raft.KRaftVersions():
            return api_versions.ApiVersionsRequest(client_software_name="penstock", client_software_version="0")


def _listeners(endpoints: raft.Endpoints) -> list[Listener]:
    return [Listener(name=each.listener, host=each.host, port=each.port) for each in endpoints]


def _vote_request(request: raft.Vote) -> Message:
    voter = request.voter or ReplicaKey(-1)
    partition = vote.VoteRequestPartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=request.cluster_id, voter_id=voter.node_id, topics=[topic])


def _begin_request(request: raft.BeginQuorumEpoch) -> Message:
    voter, leader = request.voter or ReplicaKey(-1), request.leader
    partition = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
        voter_directory_id=voter.directory_id, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=voter.node_id,
        topics=[begin_quorum_epoch.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=_listeners(leader.endpoints),
    )


def _end_request(request: raft.EndQuorumEpoch) -> Message:
    leader = request.leader
    partition = end_quorum_epoch.EndQuorumEpochRequestPartitionData(
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        preferred_successors=[successor.node_id for successor in request.preferred_successors],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(
                candidate_id=successor.node_id, candidate_directory_id=successor.directory_id or ZERO_UUID
            )
            for successor in request.preferred_successors
        ],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        topics=[end_quorum_epoch.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=_listeners(leader.endpoints),
    )


def _fetch_request(request: raft.Fetch) -> Message:
    partition = fetch.FetchPartition(
        current_leader_epoch=request.leader_epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_fetched_epoch,
        partition_max_bytes=request.max_bytes,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.node_id),
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _fetch_snapshot_request(request: raft.FetchSnapshot) -> Message:
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=request.leader_epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=request.snapshot.offset, epoch=request.snapshot.epoch),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=request.max_bytes,
        topics=[fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


# -- incoming answers ------------------------------------------------------------------------------------------------


def answer_from_wire(message: Message, listener: str) -> raft.Answer:
    """Copies everything out of the receive buffer. Raises KafkaError for an invalid answer."""
    match message:
        case vote.VoteResponse():
            if message.error_code:
                return raft.VoteAnswer(error=ErrorCode(message.error_code))
            granted = _named(message.topics)
            return raft.VoteAnswer(
                error=ErrorCode(granted.error_code),
                leader=_hint(granted, message.node_endpoints, listener),
                granted=granted.vote_granted,
            )
        case begin_quorum_epoch.BeginQuorumEpochResponse():
            return _epoch_answered(raft.BeginQuorumEpochAnswer, message, listener)
        case end_quorum_epoch.EndQuorumEpochResponse():
            return _epoch_answered(raft.EndQuorumEpochAnswer, message, listener)
        case fetch.FetchResponse():
            return _fetched(message, listener)
        case fetch_snapshot.FetchSnapshotResponse():
            return _snapshot_fetched(message, listener)
        case add_raft_voter.AddRaftVoterResponse() | remove_raft_voter.RemoveRaftVoterResponse():
            return raft.VoterChangeAnswer(error=ErrorCode(message.error_code), message=message.error_message)
        case update_raft_voter.UpdateRaftVoterResponse():
            return _updated(message, listener)
        case api_versions.ApiVersionsResponse():
            supported = {each.name: (each.min_version, each.max_version) for each in message.supported_features}
            return raft.KRaftVersionsAnswer(
                error=ErrorCode(message.error_code), kraft_versions=supported.get(_KRAFT_VERSION)
            )
    raise TypeError(f"{type(message).__name__} is no message of the quorum")


def _hint(leader: Any, nodes: Sequence[Any], listener: str) -> raft.LeaderHint:
    """`leader`: any object with a leader's id and epoch."""
    if leader is None:
        return raft.NO_HINT
    endpoints = tuple(
        VoterEndpoint(listener, node.host, node.port) for node in nodes if node.node_id == leader.leader_id >= 0
    )
    return raft.LeaderHint(leader.leader_epoch, leader.leader_id, endpoints)


def _epoch_answered(
    answer_type: type[EpochAnswer],
    message: begin_quorum_epoch.BeginQuorumEpochResponse | end_quorum_epoch.EndQuorumEpochResponse,
    listener: str,
) -> EpochAnswer:
    if message.error_code:
        return answer_type(error=ErrorCode(message.error_code))
    partition: PartitionAnswer = _named(message.topics)
    return answer_type(error=ErrorCode(partition.error_code), leader=_hint(partition, message.node_endpoints, listener))


def _fetched(message: fetch.FetchResponse, listener: str) -> raft.FetchAnswer:
    if message.error_code:
        return raft.FetchAnswer(error=ErrorCode(message.error_code))
    partition: fetch.PartitionData = _only(message.responses, _is_metadata_topic, True)
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    records: Any = partition.records
    return raft.FetchAnswer(
        error=ErrorCode(partition.error_code),
        leader=_hint(partition.current_leader, message.node_endpoints, listener),
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging=None
        if diverging is None or diverging.epoch < 0
        else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
        snapshot=None
        if snapshot is None or snapshot.epoch < 0
        else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
        records=bytes(records) if records is not None and len(records) else None,
    )


def _snapshot_fetched(message: fetch_snapshot.FetchSnapshotResponse, listener: str) -> raft.FetchSnapshotAnswer:
    if message.error_code:
        return raft.FetchSnapshotAnswer(error=ErrorCode(message.error_code))
    partition: fetch_snapshot.FetchSnapshotResponsePartitionSnapshot = _only(
        message.topics, lambda topic: topic.name, METADATA_TOPIC
    )
    data: Any = partition.unaligned_records
    return raft.FetchSnapshotAnswer(
        error=ErrorCode(partition.error_code),
        leader=_hint(partition.current_leader, message.node_endpoints, listener),
        snapshot=OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        size=partition.size,
        position=partition.position,
        data=bytes(data or b""),
    )


def _updated(message: update_raft_voter.UpdateRaftVoterResponse, listener: str) -> raft.VoterChangeAnswer:
    leader = message.current_leader
    hint = raft.NO_HINT
    if leader is not None:
        endpoints = (VoterEndpoint(listener, leader.host, leader.port),) if leader.host else ()
        hint = raft.LeaderHint(leader.leader_epoch, leader.leader_id, endpoints)
    return raft.VoterChangeAnswer(error=ErrorCode(message.error_code), leader=hint)
