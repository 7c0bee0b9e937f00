"""EndTxn: commits or aborts a transaction.

Versions 0-5: 2 adds PRODUCER_FENCED, 5 bumps the producer's epoch each time (KIP-890).
"""

from __future__ import annotations

from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.questions import caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.security.authorizer import Operation, transactional_id_resource

VERSIONS = (0, 5)


def handle(services: TransactionServices, request: Request, message: EndTxnRequest) -> EndTxnResponse | None:
    def refusal(code: ErrorCode) -> EndTxnResponse:
        return EndTxnResponse(error_code=code)

    if not request.may(Operation.WRITE, transactional_id_resource(message.transactional_id)):
        return refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    caller = caller_of(request)
    # A producer that has used all epochs continues with another id, and retries if none is available. Other producers
    # need no id, so transactions can end while no controller answers.
    services.coordinators.transactions.submit(
        message.transactional_id,
        lambda shard, token, now_ms: shard.end_txn(message, token, caller, now_ms),
        Waiting(request.park(), refusal),
        writes=True,
    )
    return None
