"""What the APIs of share groups have in common: who may ask, and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.broker.apis.services import GroupServices, ShareServices
from penstock.broker.coordinators.questions import Gathering
from penstock.broker.net.request import Request
from penstock.broker.partitions.replica import Replica
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages import share_acknowledge, share_fetch
from penstock.security.authorizer import Operation, group_resource, topic_resource
from penstock.shares.sessions import PartitionKey, SessionKey
from penstock.shares.states import Acknowledgement, AcknowledgeType

MEMBER_ID_MAX = 36
RENEWALS_SINCE = 2

RequestedTopic = share_fetch.FetchTopic | share_acknowledge.AcknowledgeTopic
Batches = Sequence[share_fetch.AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch]


def session_of(services: ShareServices, request: Request, group_id: str | None, member_id: str | None) -> SessionKey:
    """Raises KafkaError if the client may not be a member of a share group."""
    if not services.coordinators.serves_share_groups:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not request.may(Operation.READ, group_resource(group_id)):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member_id or len(member_id) > MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return SessionKey(group_id, member_id)


def offsets_error(services: GroupServices, request: Request, group_id: str, operation: Operation) -> ErrorCode:
    """Why the client may not do this with the offsets of a share group; NONE if it may."""
    if not services.coordinators.serves_share_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    if not request.may(operation, group_resource(group_id)):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


class Partition(NamedTuple):
    """A partition that a member asks for: its replica on this broker, or why there is none."""

    topic: str | None
    replica: Replica | None
    error: ErrorCode


def find(services: ShareServices, request: Request, key: PartitionKey) -> Partition:
    name = services.metadata.image.topics.name_of(key.topic_id)
    if name is None:
        return Partition(None, None, ErrorCode.UNKNOWN_TOPIC_ID)
    if not request.may(Operation.READ, topic_resource(name)):
        return Partition(None, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replica = services.replicas.get_by_id(*key)
    if replica is None:
        return Partition(name, None, services.hints.not_here(name, key.partition).code)
    if replica.leader is None:
        code = ErrorCode.KAFKA_STORAGE_ERROR if replica.is_offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return Partition(name, None, code)
    return Partition(name, replica, ErrorCode.NONE)


class Acknowledging:
    """The acknowledgements of one request; `results` is complete when `done` is called."""

    def __init__(self, services: ShareServices, request: Request, session: SessionKey, *, is_renewal: bool) -> None:
        self.results: dict[PartitionKey, ErrorCode] = {}
        self._services = services
        self._request = request
        self._session = session
        self._is_renewal = is_renewal

    def run(self, topics: Sequence[RequestedTopic], done: Callable[[], None]) -> None:
        """Partitions without acknowledgements have no result."""
        asked = [
            (PartitionKey(topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
            for topic in topics
            for partition in topic.partitions
            if partition.acknowledgement_batches
        ]
        gathering = Gathering(len(asked), done)
        for key, batches in asked:
            self._acknowledge(key, batches, gathering)

    def _acknowledge(self, key: PartitionKey, batches: Batches, gathering: Gathering) -> None:
        def answered(code: ErrorCode) -> None:
            self.results[key] = code
            gathering.one_more()

        try:
            acknowledgements = self._check(batches)
        except ValueError:
            answered(ErrorCode.INVALID_REQUEST)
            return
        found = find(self._services, self._request, key)
        if found.error:
            answered(found.error)
            return
        served = self._services.shares.get(self._session.group_id, *key)
        if served is None or served.core is None:
            answered(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            served.acknowledge(self._session.member_id, acknowledgements, answered)

    def _check(self, batches: Batches) -> list[Acknowledgement]:
        """Raises ValueError if the acknowledgements are malformed."""
        found = []
        previous_last = -1
        for batch in batches:
            first, last = batch.first_offset, batch.last_offset
            types = tuple(AcknowledgeType(kind) for kind in batch.acknowledge_types)
            if not previous_last <= first <= last or len(types) not in (1, last - first + 1):
                raise ValueError
            if AcknowledgeType.RENEW in types and not (self._is_renewal and self._request.version >= RENEWALS_SINCE):
                raise ValueError
            found.append(Acknowledgement(first, last, types))
            previous_last = last
        return found
