"""WriteTxnMarkers (API key 27). A transaction coordinator sends partition leaders the outcome of transactions."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = field("0+")


class WritableTxnMarker(Message):
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    transaction_result: bool = field("0+")
    topics: list[WritableTxnMarkerTopic] = field("0+")
    coordinator_epoch: Int32 = field("0+")
    transaction_version: Int8 = field("2+", ignorable=True)


class WritableTxnMarkerTopic(Message):
    name: str = field("0+")
    partition_indexes: list[Int32] = field("0+")


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field("0+")


class WritableTxnMarkerResult(Message):
    producer_id: Int64 = field("0+")
    topics: list[WritableTxnMarkerTopicResult] = field("0+")


class WritableTxnMarkerTopicResult(Message):
    name: str = field("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = field("0+")


class WritableTxnMarkerPartitionResult(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
