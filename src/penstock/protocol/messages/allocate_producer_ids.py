"""AllocateProducerIds (API key 67). A broker gets a block of producer ids from the controller."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class AllocateProducerIdsRequest(Message, key=67, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)


class AllocateProducerIdsResponse(Message, key=67, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    producer_id_start: Int64 = field("0+")
    producer_id_len: Int32 = field("0+")
