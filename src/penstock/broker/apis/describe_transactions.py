"""DescribeTransactions: the state of transactions, and their partitions. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.questions import Gathering, ask_each, caller_of
from penstock.broker.coordinators.shard import Waiting
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

    def described(part: DescribeTransactionsResponse) -> None:
        for state in part.transaction_states:
            state.topics = [
                topic for topic in state.topics if request.could(Operation.DESCRIBE, topic_resource(topic.topic))
            ]
        response.transaction_states += part.transaction_states
        gathering.one_more()

    def ask_for(name: str) -> None:
        def refusal(code: ErrorCode) -> DescribeTransactionsResponse:
            state = TransactionState(transactional_id=name, error_code=code)
            return DescribeTransactionsResponse(transaction_states=[state])

        if not request.may(Operation.DESCRIBE, transactional_id_resource(name)):
            described(refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        asked = DescribeTransactionsRequest(transactional_ids=[name])
        services.coordinators.transactions.submit(
            name,
            lambda shard, token, now_ms: shard.describe_transactions(asked, token, caller, now_ms),
            Waiting(described, refusal),
        )

    names = dict.fromkeys(message.transactional_ids)
    gathering = Gathering(len(names), lambda: answer(response))
    ask_each(services.coordinators.transactions.upkeep, request, names, ask_for)
