"""Producer ids: allocates them to brokers in blocks; no block is ever allocated twice."""

from __future__ import annotations

from typing import Final

from penstock.controller.brokers import BrokerHandlers
from penstock.controller.result import Result
from penstock.metadata.image import MetadataImage
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.protocol.messages.metadata_records import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE: Final = 1000
_LONG_MAX: Final = 2**63 - 1


def allocate_producer_ids(
    image: MetadataImage, brokers: BrokerHandlers, request: AllocateProducerIdsRequest
) -> Result[AllocateProducerIdsResponse]:
    brokers.registered(request.broker_id, request.broker_epoch)
    start = image.next_producer_id
    if start > _LONG_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "There are no producer ids left.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return Result([record], response)
