"""AddPartitionsToTxn (API key 24). Add partitions to a transaction, or verify that they are in it."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: str = field("0-3")
    v3_and_below_producer_id: Int64 = field("0-3")
    v3_and_below_producer_epoch: Int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = field("4+")
    producer_id: Int64 = field("4+")
    producer_epoch: Int16 = field("4+")
    verify_only: bool = field("4+")
    topics: list[AddPartitionsToTxnTopic] = field("4+")


class AddPartitionsToTxnTopic(Message):
    name: str = field("0+")
    partitions: list[Int32] = field("0+")


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")


class AddPartitionsToTxnResult(Message):
    transactional_id: str = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")


class AddPartitionsToTxnTopicResult(Message):
    name: str = field("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field("0+")


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: Int32 = field("0+")
    partition_error_code: Int16 = field("0+")
