"""InitProducerId: an id for an idempotent producer.

Versions 0-5. Each call gives a new id with epoch 0, which is what a producer without a transactional id wants also when
it asks for a new epoch of its old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 5)


def handle(node: Node, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse | None:
    if message.transactional_id is not None:
        # Nothing advertises a transaction coordinator, so no client gets this far by itself.
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not request.may(Operation.IDEMPOTENT_WRITE, CLUSTER):
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (message.producer_id == -1) != (message.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = request.park()

    def taken(producer_id: int | KafkaError) -> None:
        if isinstance(producer_id, KafkaError):
            answer(InitProducerIdResponse(error_code=producer_id.code))
        else:
            answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    node.producer_ids.take(taken)
    return None
