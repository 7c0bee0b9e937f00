"""ListTransactions: the transactional ids that this broker coordinates.

Versions 0-2: 1 filters by duration, 2 by a pattern of the transactional id.
"""

from __future__ import annotations

from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.partition import CoordinatorPartition
from penstock.broker.coordinators.questions import Gathering, ask_each, caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.security.authorizer import Operation, transactional_id_resource
from penstock.transactions.listing import list_transactions, shorten
from penstock.transactions.routing import merge_list
from penstock.transactions.shard import TransactionShard

VERSIONS = (0, 2)


def handle(
    services: TransactionServices, request: Request, message: ListTransactionsRequest
) -> ListTransactionsResponse | None:
    # Invalid filters are an error even if there are no transactions.
    parts = [list_transactions((), message, 0)]
    if parts[0].error_code:
        return parts[0]
    shorten(message)
    partitions = list(services.coordinators.transactions.partitions.values())
    answer = request.park(mute=True)
    caller = caller_of(request)

    def done() -> None:
        merged = merge_list(parts)
        merged.transaction_states = [
            state
            for state in merged.transaction_states
            if request.could(Operation.DESCRIBE, transactional_id_resource(state.transactional_id))
        ]
        answer(merged)

    def listed(part: ListTransactionsResponse) -> None:
        parts.append(part)
        gathering.one_more()

    def ask(partition: CoordinatorPartition[TransactionShard]) -> None:
        partition.submit(
            lambda shard, token, now_ms: shard.list_transactions(message, token, caller, now_ms),
            Waiting(listed, lambda code: ListTransactionsResponse(error_code=code)),
        )

    gathering = Gathering(len(partitions), done)
    ask_each(services.coordinators.transactions.upkeep, request, partitions, ask)
    return None
