"""JoinGroup (API key 11). Join a classic group, or take part in its rebalance."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    group_id: str = field("0+")
    session_timeout_ms: Int32 = field("0+")
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: str = field("0+")
    group_instance_id: str | None = field("5+", nullable="5+", default=None)
    protocol_type: str = field("0+")
    protocols: list[JoinGroupRequestProtocol] = field("0+")
    reason: str | None = field("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupRequestProtocol(Message):
    name: str = field("0+")
    metadata: bytes = field("0+")


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    error_code: Int16 = field("0+")
    generation_id: Int32 = field("0+", default=-1)
    protocol_type: str | None = field("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field("0+", nullable="7+")
    leader: str = field("0+")
    skip_assignment: bool = field("9+")
    member_id: str = field("0+")
    members: list[JoinGroupResponseMember] = field("0+")


class JoinGroupResponseMember(Message):
    member_id: str = field("0+")
    group_instance_id: str | None = field("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field("0+")
