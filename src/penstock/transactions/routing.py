"""Splits requests that concern several coordinator partitions, and merges the answers.

A broker sends the transactions of many producers in one AddPartitionsToTxn, and an operator asks for many transactional
ids at once. They are split by the partition that owns a transactional id. The module also makes the refusals that
precede the coordinator's decision.
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
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
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


def split_add_partitions(
    request: AddPartitionsToTxnRequest, partition_of: Callable[[str], int]
) -> dict[int, AddPartitionsToTxnRequest]:
    """Split a request of version 4 or later by the coordinator partitions that own its transactions."""
    parts: dict[int, AddPartitionsToTxnRequest] = {}
    for transaction in request.transactions:
        part = parts.setdefault(partition_of(transaction.transactional_id), AddPartitionsToTxnRequest())
        part.transactions.append(transaction)
    return parts


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


def merge_add_partitions(parts: Iterable[AddPartitionsToTxnResponse]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[result for part in parts for result in part.results_by_transaction]
    )


def split_describe(
    request: DescribeTransactionsRequest, partition_of: Callable[[str], int]
) -> dict[int, DescribeTransactionsRequest]:
    parts: dict[int, DescribeTransactionsRequest] = {}
    for transactional_id in request.transactional_ids:
        part = parts.setdefault(partition_of(transactional_id), DescribeTransactionsRequest())
        part.transactional_ids.append(transactional_id)
    return parts


def refused_describe(request: DescribeTransactionsRequest, error: ErrorCode) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=transactional_id, error_code=error)
            for transactional_id in request.transactional_ids
        ]
    )


def merge_describe(
    request: DescribeTransactionsRequest, parts: Iterable[DescribeTransactionsResponse]
) -> DescribeTransactionsResponse:
    """Merge the answers in the order of the request."""
    states = {state.transactional_id: state for part in parts for state in part.transaction_states}
    return DescribeTransactionsResponse(transaction_states=[states[name] for name in request.transactional_ids])


def merge_list(parts: Iterable[ListTransactionsResponse]) -> ListTransactionsResponse:
    """Merge the answers of all shards of a broker.

    One shard that fails fails the whole, since operators must not miss a hanging transaction.
    """
    merged = ListTransactionsResponse()
    for part in parts:
        if part.error_code:
            return ListTransactionsResponse(error_code=part.error_code)
        merged.unknown_state_filters = part.unknown_state_filters
        merged.transaction_states += part.transaction_states
    return merged
