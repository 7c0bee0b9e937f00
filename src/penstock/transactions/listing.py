"""DescribeTransactions and ListTransactions: how operators find hanging transactions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import TopicData
from penstock.protocol.messages.describe_transactions import TransactionState as Described
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.protocol.messages.list_transactions import TransactionState as Listed
from penstock.regex import InvalidRegex, Regex
from penstock.transactions.records import by_topic
from penstock.transactions.state import Status, Transaction

# Every shard of a broker gets the same pattern.
_compile = lru_cache(maxsize=16)(Regex)


def describe(transactional_id: str, current: Transaction | None) -> Described:
    if not transactional_id:
        return Described(error_code=ErrorCode.INVALID_REQUEST, transactional_id=transactional_id)
    if current is None:
        return Described(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    return Described(
        transactional_id=transactional_id,
        transaction_state=current.status.label,
        transaction_timeout_ms=current.timeout_ms,
        transaction_start_time_ms=current.started_ms,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=partitions) for topic, partitions in by_topic(current.partitions).items()
        ],
    )


def shorten(request: ListTransactionsRequest) -> None:
    """Drop repetitions and names that match nothing from the filters: every partition gets them."""
    names = dict.fromkeys(request.state_filters)
    known = [name for name in names if Status.by_label(name) is not None]
    request.state_filters = known or request.state_filters[:1]
    request.producer_id_filters = list(set(request.producer_id_filters))


def list_transactions(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, now_ms: int
) -> ListTransactionsResponse:
    """List the transactions that match all given filters. Unknown states are reported and match nothing."""
    response = ListTransactionsResponse()
    names = dict.fromkeys(request.state_filters)
    statuses = {status for name in names if (status := Status.by_label(name)) is not None}
    response.unknown_state_filters = [name for name in names if Status.by_label(name) is None]
    producer_ids = set(request.producer_id_filters)
    try:
        pattern = _compile(request.transactional_id_pattern) if request.transactional_id_pattern else None
        matching = [each for each in transactions if pattern is None or pattern.matches(each.transactional_id)]
    except InvalidRegex:
        response.error_code = ErrorCode.INVALID_REGULAR_EXPRESSION
        return response
    for transaction in matching:
        if producer_ids and transaction.producer_id not in producer_ids:
            continue
        if request.state_filters and transaction.status not in statuses:
            continue
        if 0 <= request.duration_filter >= now_ms - transaction.started_ms:
            continue
        response.transaction_states.append(
            Listed(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.status.label,
            )
        )
    return response
