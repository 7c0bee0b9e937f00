"""Before the first record of a transaction is written to a partition, its coordinator must know of the partition.

A record that belongs to no transaction the coordinator knows of would never be committed nor aborted, and hold up every
reader behind it. Older clients add partitions themselves, and the leader only verifies that they did; newer ones
(Produce 12, TxnOffsetCommit 5) leave it to the leader to add them.

What is kept with the partition while the question is under way is in `replication/verification.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.coordinators.internal_topics import TRANSACTION_STATE
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.peers import PeerFailed
from penstock.model.decision import Caller
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.transactions.routing import refused_add_partitions

if TYPE_CHECKING:
    from penstock.broker.node import Node

CHANNEL: Final = "transactions"
VERSION: Final = 5  # of AddPartitionsToTxn, between brokers
# The transaction before may still be on its way out: Kafka's add.partitions.to.txn.retry.backoff settings.
RETRY_SECONDS: Final = 0.02
RETRY_MAX_SECONDS: Final = 0.1

Verified = Callable[[Mapping[TopicPartition, ErrorCode]], None]

_ASK_AGAIN = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


def told_to_producers(code: ErrorCode, *, adds: bool, knows_abortable: bool) -> ErrorCode:
    """What the coordinator said, as producers of that age understand it."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code in _ASK_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # which has every client send it again, without looking for leaders
    return code


class TransactionVerification:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = node.loop

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
        """`done` gets the coordinator's error code for each partition, later or at once."""
        by_topic: dict[str, list[int]] = {}
        for name, index in partitions:
            by_topic.setdefault(name, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not adds,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
        )
        self._ask(transaction, done, self._loop.time() + RETRY_MAX_SECONDS)

    def _ask(self, transaction: AddPartitionsToTxnTransaction, done: Verified, again_until: float) -> None:
        node = self._node
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        answered = partial(self._answered, transaction, done, again_until)
        coordinator = node.coordinators.transactions
        index = coordinator.partition_of(transaction.transactional_id)
        partition = node.image.topics.partition(TRANSACTION_STATE, index)
        leader = None if partition is None else node.image.brokers.get(partition.leader)
        if leader is None:
            answered(refused_add_partitions(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, VERSION))
            return
        if leader.broker_id == node.settings.node_id:
            coordinator.submit(
                transaction.transactional_id,
                lambda shard, token, now_ms: shard.add_partitions_to_txn(
                    request, token, Caller(api_version=VERSION), now_ms
                ),
                Waiting(answered, lambda code: refused_add_partitions(request, code, VERSION)),
            )
            return
        endpoint = leader.endpoints.get(node.settings.inter_broker_listener)
        if endpoint is None:
            answered(refused_add_partitions(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, VERSION))
            return
        peer = node.peers.at(endpoint.host, endpoint.port, CHANNEL)
        peer.send(request, answered, timeout=node.settings.request_timeout_ms / 1000)

    def _answered(
        self,
        transaction: AddPartitionsToTxnTransaction,
        done: Verified,
        again_until: float,
        outcome: AddPartitionsToTxnResponse | PeerFailed,
    ) -> None:
        errors = {
            TopicPartition(topic.name, index): ErrorCode.NETWORK_EXCEPTION
            for topic in transaction.topics
            for index in topic.partitions
        }
        if not isinstance(outcome, PeerFailed):
            if outcome.error_code:
                errors = dict.fromkeys(errors, ErrorCode(outcome.error_code))
            for result in outcome.results_by_transaction:
                for topic in result.topic_results:
                    for each in topic.results_by_partition:
                        errors[TopicPartition(topic.name, each.partition_index)] = ErrorCode(each.partition_error_code)
        if (
            not transaction.verify_only
            and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            and self._loop.time() + RETRY_SECONDS <= again_until
        ):
            self._loop.call_later(RETRY_SECONDS, self._ask, transaction, done, again_until)
            return
        done(errors)
