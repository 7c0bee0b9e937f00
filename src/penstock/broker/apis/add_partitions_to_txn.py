"""AddPartitionsToTxn: adds partitions to a transaction before any of its records are written to them.

Versions 0-5. Up to version 3 it comes from clients, for one transaction. From version 4 it comes from brokers, for any
number of transactions, and may only ask whether they contain the partitions (`verify_only`).
"""

from __future__ import annotations

from functools import partial

from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.questions import Gathering, caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.model.topics import INTERNAL_TOPICS
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from penstock.security.authorizer import CLUSTER, Operation, topic_resource, transactional_id_resource
from penstock.transactions.routing import refused_add_partitions, refused_topics, transactions_of

VERSIONS = (0, 5)

OF_BROKERS_SINCE = 4


def handle(
    services: TransactionServices, request: Request, message: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | None:
    version = request.version
    is_of_broker = version >= OF_BROKERS_SINCE
    if is_of_broker and not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    transactions = transactions_of(message, version)
    results: list[AddPartitionsToTxnResult] = []
    answer = request.park()

    def done() -> None:
        if is_of_broker:
            answer(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))

    gathering = Gathering(len(transactions), done)
    for transaction in transactions:
        _add(services, request, transaction, results, gathering)
    return None


def _add(
    services: TransactionServices,
    request: Request,
    transaction: AddPartitionsToTxnTransaction,
    results: list[AddPartitionsToTxnResult],
    gathering: Gathering,
) -> None:
    """Handle one transaction. The shard gets the form that brokers use, and the client's version where it matters."""
    version = request.version
    transactional_id = transaction.transactional_id

    def added(response: AddPartitionsToTxnResponse) -> None:
        if version < OF_BROKERS_SINCE:
            topic_results = response.results_by_topic_v3_and_below
            results.append(AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topic_results))
        else:
            results.extend(response.results_by_transaction)
        gathering.one_more()

    asked = AddPartitionsToTxnRequest(transactions=[transaction])
    if version < OF_BROKERS_SINCE:
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.producer_epoch,
            v3_and_below_topics=transaction.topics,
        )

    def refusal(code: ErrorCode) -> AddPartitionsToTxnResponse:
        return refused_add_partitions(asked, code, version)

    def check(topic: str, index: int) -> ErrorCode:
        if version < OF_BROKERS_SINCE and (
            topic in INTERNAL_TOPICS or not request.may(Operation.WRITE, topic_resource(topic))
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if services.metadata.image.topics.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    if version < OF_BROKERS_SINCE and not request.may(Operation.WRITE, transactional_id_resource(transactional_id)):
        added(refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    refused = refused_topics(transaction.topics, check)
    if refused is not None:
        results.append(AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=refused))
        gathering.one_more()
        return
    caller = caller_of(request)
    submit = (
        partial(services.coordinators.transactions.submit, is_current=True)
        if transaction.verify_only
        else services.coordinators.completion.submit
    )
    submit(
        transactional_id,
        lambda shard, token, now_ms: shard.add_partitions_to_txn(asked, token, caller, now_ms),
        Waiting(added, refusal),
    )
