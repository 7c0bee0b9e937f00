"""Heartbeat (API key 12). Keep a classic group's member alive."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    group_id: str = field("0+")
    generation_id: Int32 = field("0+")
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0+")
