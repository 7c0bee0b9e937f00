"""PushTelemetry (API key 72). A client sends its metrics."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Uuid


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid = field("0+")
    subscription_id: Int32 = field("0+")
    terminating: bool = field("0+")
    compression_type: Int8 = field("0+")
    metrics: bytes = field("0+")


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
