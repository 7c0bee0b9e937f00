"""Verification of partitions: what a leader asks the coordinator before a transaction begins in a partition.

The version of the client's request (`Support`) decides whether the leader adds the partition for the client or only
verifies that the client did, and which errors the client understands. A broker sends one request at a time to the
coordinators at another broker, each with all questions that arose since the last one; several batches of a transaction
share its entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.coordinator.decision import Token
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.transactions.records import by_topic
from penstock.transactions.state import Identity

# Errors on which the client must retry, but that older clients do not know. NOT_ENOUGH_REPLICAS makes them retry
# without a search for the leader.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Support(NamedTuple):
    """What the client supports, according to the version of its request."""

    adds: bool
    """It leaves adding partitions to their leaders, and uses transaction version 2."""
    abortable: bool
    """It understands TRANSACTION_ABORTABLE."""

    @property
    def transaction_version(self) -> int:
        return 2 if self.adds else 0


def produce_support(api_version: int) -> Support:
    return Support(api_version >= 12, api_version >= 11)


def txn_offset_commit_support(api_version: int) -> Support:
    return Support(api_version >= 5, api_version >= 4)


def produce_error(error: ErrorCode, support: Support) -> ErrorCode:
    """Return the error for a producer if the coordinator refuses."""
    error = _known_error(error, support)
    if error in _TRY_AGAIN or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not support.adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


def txn_offset_commit_error(error: ErrorCode, support: Support) -> ErrorCode:
    error = _known_error(error, support)
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error is ErrorCode.NETWORK_EXCEPTION else error


def _known_error(error: ErrorCode, support: Support) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not support.abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


class Question(NamedTuple):
    transactional_id: str
    identity: Identity
    adds: bool
    partitions: tuple[TopicPartition, ...]
    token: Token


class QuestionResult(NamedTuple):
    token: Token
    errors: Mapping[TopicPartition, ErrorCode]
    """The error code of every partition of the question."""


class VerificationRequest(NamedTuple):
    """A request that is in flight."""

    request: AddPartitionsToTxnRequest
    questions: list[Question]

    def answers(self, response: AddPartitionsToTxnResponse) -> list[QuestionResult]:
        if response.error_code:
            # The operator has not authorized brokers to ask each other; this is not the client's problem.
            error = ErrorCode(response.error_code)
            unauthorized = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return self.failed(ErrorCode.INVALID_TXN_STATE if unauthorized else error)
        errors = {
            (result.transactional_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode(
                partition.partition_error_code
            )
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        unanswered = ErrorCode.UNKNOWN_SERVER_ERROR
        return [
            QuestionResult(
                question.token, {p: errors.get((question.transactional_id, p), unanswered) for p in question.partitions}
            )
            for question in self.questions
        ]

    def failed(self, error: ErrorCode) -> list[QuestionResult]:
        """Answer all questions with the same error: NETWORK_EXCEPTION if the connection broke."""
        return [
            QuestionResult(question.token, dict.fromkeys(question.partitions, error)) for question in self.questions
        ]


class Questions:
    """Questions for the coordinators at one broker that have not been sent yet."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Question] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, question: Question) -> None:
        self._waiting.append(question)

    def take(self) -> VerificationRequest | None:
        """Return the next request.

        It holds a transactional id once; questions of its other producers follow in the next one.
        """
        entries: dict[str, tuple[Identity, bool]] = {}
        partitions: dict[str, set[TopicPartition]] = {}
        asked, later = [], []
        for question in self._waiting:
            entry = question.identity, question.adds
            if entries.setdefault(question.transactional_id, entry) == entry:
                partitions.setdefault(question.transactional_id, set()).update(question.partitions)
                asked.append(question)
            else:
                later.append(question)
        self._waiting = later
        if not asked:
            return None
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                verify_only=not adds,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in by_topic(partitions[transactional_id]).items()
                ],
            )
            for transactional_id, (identity, adds) in entries.items()
        ]
        return VerificationRequest(AddPartitionsToTxnRequest(transactions=transactions), asked)
