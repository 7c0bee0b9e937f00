"""The records of `__transaction_state`: keys preceded by their type, values by their version (both int16)."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64


class TransactionLogKey(Message, key=0, versions="0"):
    transactional_id: str = field("0")


class TransactionLogValue(Message, key=0, versions="0-1", flexible="1+"):
    producer_id: Int64 = field("0+")
    previous_producer_id: Int64 = field("1+", default=-1, tag=0)
    next_producer_id: Int64 = field("1+", default=-1, tag=1)
    producer_epoch: Int16 = field("0+")
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32 = field("0+")
    transaction_status: Int8 = field("0+")
    transaction_partitions: list[PartitionsSchema] | None = field("0+", nullable="0+")
    transaction_last_update_timestamp_ms: Int64 = field("0+")
    transaction_start_timestamp_ms: Int64 = field("0+")
    client_transaction_version: Int16 = field("1+", tag=2)


class PartitionsSchema(Message):
    topic: str = field("0+")
    partition_ids: list[Int32] = field("0+")


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (TransactionLogKey, TransactionLogValue),
}
