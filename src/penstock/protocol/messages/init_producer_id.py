"""InitProducerId (API key 22). Get a producer id and epoch. Version 6 (two-phase commit) is not stable yet."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class InitProducerIdRequest(Message, key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = field("0+", nullable="0+")
    transaction_timeout_ms: Int32 = field("0+")
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: bool = field("6+")
    keep_prepared_txn: bool = field("6+")


class InitProducerIdResponse(Message, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32 = field("0+", ignorable=True)
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("0+", default=-1)
    producer_epoch: Int16 = field("0+")
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
