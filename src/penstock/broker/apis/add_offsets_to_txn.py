"""AddOffsetsToTxn: adds the partition that holds a group's offsets to a transaction. Versions 0-4."""

from __future__ import annotations

from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.questions import caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.security.authorizer import Operation, group_resource, transactional_id_resource

VERSIONS = (0, 4)


def handle(
    services: TransactionServices, request: Request, message: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | None:
    def refusal(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=code)

    if not request.may(Operation.WRITE, transactional_id_resource(message.transactional_id)):
        return refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.may(Operation.READ, group_resource(message.group_id)):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    caller = caller_of(request)
    services.coordinators.completion.submit(
        message.transactional_id,
        lambda shard, token, now_ms: shard.add_offsets_to_txn(message, token, caller, now_ms),
        Waiting(request.park(), refusal),
    )
    return None
