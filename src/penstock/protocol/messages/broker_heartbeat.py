"""BrokerHeartbeat (API key 63). A broker keeps its registration alive, asks to be unfenced, or to shut down."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class BrokerHeartbeatRequest(Message, key=63, versions="0-2", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    current_metadata_offset: Int64 = field("0+")
    want_fence: bool = field("0+")
    want_shut_down: bool = field("0+")
    offline_log_dirs: list[Uuid] = field("1+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    is_caught_up: bool = field("0+")
    is_fenced: bool = field("0+", default=True)
    should_shut_down: bool = field("0+")
