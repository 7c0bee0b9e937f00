"""TxnOffsetCommit: stores offsets of a group that take effect when the transaction commits.

Versions 0-6: 2 adds leader epochs, 3 the member, 4 TRANSACTION_ABORTABLE, 5 makes the broker add the group's partition
to the transaction, 6 has topic ids, and the errors of members of the new protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.apis.commit_admission import Admission, refuser
from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.partition import Producer
from penstock.broker.coordinators.questions import caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.replication.verification import Verification
from penstock.security.authorizer import Operation, group_resource, transactional_id_resource
from penstock.transactions.partition_verification import txn_offset_commit_error, txn_offset_commit_support

VERSIONS = (0, 6)

TOPIC_IDS_SINCE = 6
KNOWS_LOADING_SINCE = 2

_refuse = refuser(TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition)


def handle(
    services: TransactionServices, request: Request, message: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | None:
    if not request.may(Operation.WRITE, transactional_id_resource(message.transactional_id)):
        return _refusal(message.topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.may(Operation.READ, group_resource(message.group_id)):
        return _refusal(message.topics, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    admission = Admission(services.metadata.image, request, _refuse)
    for topic in message.topics:
        admission.admit(topic, by_id=request.version >= TOPIC_IDS_SINCE)
    if not admission.known and message.topics:
        return TxnOffsetCommitResponse(topics=admission.refused)
    message.topics = admission.known
    _Commit(services, request, message, admission).start()
    return None


class _Commit:
    """One commit: verifies that the transaction has the group's partition, or adds it; then writes the offsets."""

    def __init__(
        self,
        services: TransactionServices,
        request: Request,
        message: TxnOffsetCommitRequest,
        admission: Admission[TxnOffsetCommitRequestTopic, TxnOffsetCommitResponseTopic],
    ) -> None:
        self._services = services
        self._request = request
        self._message = message
        self._admission = admission
        self._support = txn_offset_commit_support(request.version)
        self._partition = TopicPartition(CONSUMER_OFFSETS, services.coordinators.groups.partition_of(message.group_id))
        self._answer = request.park()

    def start(self) -> None:
        services, message = self._services, self._message
        if not message.group_id:
            self._refuse(ErrorCode.INVALID_GROUP_ID)
            return
        replica = services.replicas.get(*self._partition)
        if replica is None or self._partition.partition not in services.coordinators.groups.partitions:
            self._refuse(ErrorCode.NOT_COORDINATOR)
            return
        producers = replica.log.producers
        header = read_header(build_batch((), producer_id=message.producer_id, producer_epoch=message.producer_epoch))
        try:
            verification = producers.begin_verification(
                header, services.clock.now_ms(), transaction_version=self._support.transaction_version
            )
        except KafkaError as error:
            self._refuse(error.code)
            return
        if verification is None or not services.coordinators.verification.must_ask(adds=self._support.adds):
            self._commit(verification)
            return

        def verified(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            code = errors[self._partition]
            if code != ErrorCode.NONE:
                self._refuse(txn_offset_commit_error(code, self._support))
                return
            self._commit(verification)

        services.coordinators.verification.ask(
            message.transactional_id,
            message.producer_id,
            message.producer_epoch,
            [self._partition],
            adds=self._support.adds,
            done=verified,
        )

    def _commit(self, verification: Verification | None) -> None:
        message = self._message
        caller = caller_of(self._request)
        self._services.coordinators.groups.submit(
            message.group_id,
            lambda shard, token, now_ms: shard.txn_offset_commit(message, token, caller, now_ms),
            Waiting(self._done, lambda code: _refusal(message.topics, code)),
            writes=True,
            producer=Producer(message.producer_id, message.producer_epoch, verification),
        )

    def _refuse(self, code: ErrorCode) -> None:
        self._done(_refusal(self._message.topics, code))

    def _done(self, response: TxnOffsetCommitResponse) -> None:
        self._admission.add_refused(response.topics)
        if self._request.version < KNOWS_LOADING_SINCE:
            for topic in response.topics:
                for each in topic.partitions:
                    if each.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._answer(response)


def _refusal(topics: list[TxnOffsetCommitRequestTopic], code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_refuse(topic, code) for topic in topics])
