"""DescribeTransactions: the state of transactions, and their partitions. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.questions import ask_shards, caller_of
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from penstock.security.authorizer import Operation, topic_resource, transactional_id_resource

VERSIONS = (0, 0)


def handle(services: TransactionServices, request: Request, message: DescribeTransactionsRequest) -> None:
    response = DescribeTransactionsResponse()
    answer = request.park(mute=True)
    caller = caller_of(request)

    def check(name: str) -> ErrorCode:
        is_allowed = request.may(Operation.DESCRIBE, transactional_id_resource(name))
        return ErrorCode.NONE if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def take(part: DescribeTransactionsResponse) -> None:
        for state in part.transaction_states:
            state.topics = [
                topic for topic in state.topics if request.could(Operation.DESCRIBE, topic_resource(topic.topic))
            ]
        response.transaction_states += part.transaction_states

    ask_shards(
        services.coordinators.transactions,
        request,
        dict.fromkeys(message.transactional_ids),
        lambda shard, name, token, now_ms: shard.describe_transactions(
            DescribeTransactionsRequest(transactional_ids=[name]), token, caller, now_ms
        ),
        check=check,
        refusal=lambda name, code: DescribeTransactionsResponse(
            transaction_states=[TransactionState(transactional_id=name, error_code=code)]
        ),
        take=take,
        done=lambda: answer(response),
    )
