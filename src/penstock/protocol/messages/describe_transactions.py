"""DescribeTransactions (API key 65). The state of transactions."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = field("0+")


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    transaction_states: list[TransactionState] = field("0+")


class TransactionState(Message):
    error_code: Int16 = field("0+")
    transactional_id: str = field("0+")
    transaction_state: str = field("0+")
    transaction_timeout_ms: Int32 = field("0+")
    transaction_start_time_ms: Int64 = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    topics: list[TopicData] = field("0+")


class TopicData(Message):
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")
