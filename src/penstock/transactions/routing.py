"""The parts of requests and answers about transactions: those that precede or follow the coordinator's decision.

A broker sends the transactions of many producers in one AddPartitionsToTxn. Each goes to the coordinator partition that
owns its transactional id. This module finds the transactions, makes the refusals that precede the decision, and merges
the lists of all coordinator partitions of a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.list_transactions import ListTransactionsResponse


def transactions_of(request: AddPartitionsToTxnRequest, api_version: int) -> list[AddPartitionsToTxnTransaction]:
    """Return the transactions.

    Up to version 3 clients send one, in separate fields; from 4 on brokers send any number.
    """
    if api_version >= 4:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def topic_results(
    topics: Iterable[AddPartitionsToTxnTopic], error_of: Callable[[str, int], int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=error_of(topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def refused_topics(
    topics: Iterable[AddPartitionsToTxnTopic], check: Callable[[str, int], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult] | None:
    """Return None if every partition may join. Otherwise none does, and valid ones get OPERATION_NOT_ATTEMPTED.

    `check` says whether the client may write to a topic, and whether the partition exists.
    """
    topics = list(topics)
    errors = {(topic.name, index): check(topic.name, index) for topic in topics for index in topic.partitions}
    if all(error is ErrorCode.NONE for error in errors.values()):
        return None
    return topic_results(topics, lambda name, index: errors[name, index] or ErrorCode.OPERATION_NOT_ATTEMPTED)


def refused_add_partitions(
    request: AddPartitionsToTxnRequest, error: ErrorCode, api_version: int
) -> AddPartitionsToTxnResponse:
    """Refuse everything in the request with the same error: the coordinator is not here, or not ready."""
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=topic_results(transaction.topics, lambda _name, _index: error),
        )
        for transaction in transactions_of(request, api_version)
    ]
    if api_version >= 4:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def merge_list(parts: Iterable[ListTransactionsResponse]) -> ListTransactionsResponse:
    """Merge the answers of all shards of a broker. The first knows all names of states that are unknown.

    One shard that fails fails the whole, since operators must not miss a hanging transaction.
    """
    merged = ListTransactionsResponse()
    for part in parts:
        if part.error_code:
            return ListTransactionsResponse(error_code=part.error_code)
        merged.unknown_state_filters = merged.unknown_state_filters or part.unknown_state_filters
        merged.transaction_states += part.transaction_states
    return merged
