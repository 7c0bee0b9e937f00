"""Asks the transaction coordinator about a partition before the first record of a transaction is written there.

A record of a transaction that the coordinator does not know would never be committed or aborted, and would block every
reader behind it. `transactions/partition_verification.py` defines the requests and the errors for clients;
`replication/verification.py` defines the state that the partition keeps meanwhile. This module delivers the questions
to the coordinator and returns the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from penstock.broker.coordinators.completion import Completion
from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.net.peers import PeerFailed
from penstock.coordinator.decision import Caller
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.topics import TRANSACTION_STATE
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from penstock.settings.live import LiveSettings
from penstock.transactions.joining import verify
from penstock.transactions.partition_verification import Question, QuestionResult, Questions, VerificationRequest
from penstock.transactions.routing import refused_add_partitions
from penstock.transactions.shard import TransactionShard
from penstock.transactions.state import Identity

CHANNEL: Final = "transactions"
VERSION: Final = 5  # of AddPartitionsToTxn, between brokers

Verified = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class _PendingQuestion:
    """The token of a question: takes the result, and holds the time until which the question is retried."""

    __slots__ = ("again_until", "done", "question")

    def __init__(self, done: Verified, again_until: float) -> None:
        self.done = done
        self.again_until = again_until
        self.question: Question


class _Line:
    """Questions to the coordinators on one other broker: one request at a time."""

    __slots__ = ("is_busy", "questions")

    def __init__(self) -> None:
        self.questions = Questions()
        self.is_busy = False


class TransactionVerification:
    def __init__(
        self,
        transactions: Coordinator[TransactionShard],
        completion: Completion,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        metadata: Metadata,
        brokers: Brokers,
    ) -> None:
        self._transactions = transactions
        self._completion = completion
        self._settings = settings
        self._loop = loop
        self._metadata = metadata
        self._brokers = brokers
        self._lines: dict[int, _Line] = {}

    def must_ask(self, *, adds: bool) -> bool:
        """Whether to ask the coordinator about the first batch of a transaction, or to trust the producer."""
        return adds or self._settings.now.transaction_partition_verification_enable

    def is_known(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> bool:
        """Whether a coordinator on this broker can confirm at once that the partition is in the transaction."""
        partition = self._transactions.partitions.get(self._transactions.partition_of(transactional_id))
        if partition is None or partition.shard is None or not partition.is_committed or partition.may_be_replaced:
            return False
        transaction = partition.shard.get(transactional_id)
        shown = Identity(producer_id, producer_epoch)
        return verify(transaction, shown, topic_partition) is ErrorCode.NONE

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        *,
        adds: bool,
        done: Verified,
    ) -> None:
        """`done` gets the coordinator's error code for each partition, now or later."""
        patience_ms = self._settings.now.add_partitions_to_txn_retry_backoff_max_ms
        pending = _PendingQuestion(done, self._loop.time() + patience_ms / 1000)
        pending.question = Question(
            transactional_id, Identity(producer_id, producer_epoch), adds, tuple(partitions), pending
        )
        self._ask(pending.question)

    def _ask(self, question: Question) -> None:
        image = self._metadata.image
        index = self._transactions.partition_of(question.transactional_id)
        partition = image.topics.partition(TRANSACTION_STATE, index)
        leader = None if partition is None else image.brokers.get(partition.leader)
        if leader is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._answered(QuestionResult(question.token, dict.fromkeys(question.partitions, code)))
        elif leader.broker_id == self._settings.static.node_id:
            self._ask_here(question)
        else:
            line = self._lines.setdefault(leader.broker_id, _Line())
            line.questions.add(question)
            if not line.is_busy:
                self._send(leader.broker_id, line)

    def _ask_here(self, question: Question) -> None:
        questions = Questions()
        questions.add(question)
        verification = questions.take()
        assert verification is not None
        request = verification.request
        submit = self._completion.submit if question.adds else partial(self._transactions.submit, is_current=True)
        submit(
            question.transactional_id,
            lambda shard, token, now_ms: shard.add_partitions_to_txn(
                request, token, Caller(api_version=VERSION), now_ms
            ),
            Waiting(
                lambda response: self._answer_all(verification.answers(response)),
                lambda code: refused_add_partitions(request, code, VERSION),
            ),
        )

    # -- other brokers ----------------------------------------------------------------------------------------------

    def _send(self, broker_id: int, line: _Line) -> None:
        verification = line.questions.take()
        line.is_busy = verification is not None
        if verification is None:
            return
        peer = self._brokers.peer(broker_id, CHANNEL)
        done = partial(self._sent, broker_id, line, verification)
        if peer is None:
            self._loop.call_soon(done, PeerFailed(f"broker {broker_id} cannot be reached"))
            return
        peer.send(verification.request, done, timeout=self._settings.now.request_timeout_ms / 1000)

    def _sent(
        self,
        broker_id: int,
        line: _Line,
        verification: VerificationRequest,
        outcome: AddPartitionsToTxnResponse | PeerFailed,
    ) -> None:
        self._send(broker_id, line)
        if isinstance(outcome, PeerFailed):
            self._answer_all(verification.failed(ErrorCode.NETWORK_EXCEPTION))
        else:
            self._answer_all(verification.answers(outcome))

    # -- answers ----------------------------------------------------------------------------------------------------

    def _answer_all(self, results: list[QuestionResult]) -> None:
        for result in results:
            self._answered(result)

    def _answered(self, result: QuestionResult) -> None:
        pending = result.token
        assert isinstance(pending, _PendingQuestion)
        # The previous transaction may not be complete yet.
        backoff = self._settings.now.add_partitions_to_txn_retry_backoff_ms / 1000
        if (
            pending.question.adds
            and ErrorCode.CONCURRENT_TRANSACTIONS in result.errors.values()
            and self._loop.time() + backoff <= pending.again_until
        ):
            self._loop.call_later(backoff, self._ask, pending.question)
        else:
            pending.done(result.errors)
