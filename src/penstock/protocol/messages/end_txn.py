"""EndTxn (API key 26). Commit or abort a transaction."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    committed: bool = field("0+")


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
