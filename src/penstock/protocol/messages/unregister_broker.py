"""UnregisterBroker (API key 64). Remove a broker that will not return."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
