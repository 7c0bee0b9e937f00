"""AddOffsetsToTxn (API key 25). Announce that a transaction will commit a group's offsets."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    group_id: str = field("0+")


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
