"""InitProducerId: allocates an id and an epoch for an idempotent or a transactional producer.

Versions 0-6: 3 lets a producer keep its id, 4 adds PRODUCER_FENCED, 6 supports participation in transactions of another
system (KIP-939), and is advertised only where that is allowed. Without a transactional id each call returns a new id
with epoch 0, even if the producer asks for a new epoch of its old id: the new id serves it as well.
"""

from __future__ import annotations

from penstock.broker.apis.services import TransactionServices
from penstock.broker.coordinators.questions import caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.security.authorizer import CLUSTER, Operation, ResourceKind, transactional_id_resource

VERSIONS = (0, 6)

TWO_PHASE_COMMIT_SINCE = 6
NO_EPOCH = -1


def handle(
    services: TransactionServices, request: Request, message: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    transactional_id = message.transactional_id
    if transactional_id is None:
        return _idempotent(services, request, message)
    resource = transactional_id_resource(transactional_id)
    if not request.may(Operation.WRITE, resource):
        return _refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if message.enable2_pc and not request.may(Operation.TWO_PHASE_COMMIT, resource):
        return _refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    waiting = Waiting(request.park(), _refusal)
    caller = caller_of(request)

    def ids_at_hand(error: KafkaError | None) -> None:
        if error is not None:
            waiting.refuse(error.code)
            return
        services.coordinators.transactions.submit(
            transactional_id,
            lambda shard, token, now_ms: shard.init_producer_id(message, token, caller, now_ms),
            waiting,
            writes=True,
        )

    services.producer_ids.when_any(ids_at_hand)
    return None


def _idempotent(
    services: TransactionServices, request: Request, message: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    may_write = request.may_any(Operation.WRITE, ResourceKind.TOPIC)
    if not may_write and not request.may(Operation.IDEMPOTENT_WRITE, CLUSTER):
        return _refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (message.producer_id == -1) != (message.producer_epoch == -1):
        return _refusal(ErrorCode.INVALID_REQUEST)
    answer = request.park()

    def taken(producer_id: int | KafkaError) -> None:
        if isinstance(producer_id, KafkaError):
            answer(_refusal(producer_id.code))
        else:
            answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    services.producer_ids.take(taken)
    return None


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
