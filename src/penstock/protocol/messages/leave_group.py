"""LeaveGroup (API key 13). Leave a classic group, or remove members from it."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    group_id: str = field("0+")
    member_id: str = field("0-2")
    members: list[MemberIdentity] = field("3+")


class MemberIdentity(Message):
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    reason: str | None = field("5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("0+")
    members: list[MemberResponse] = field("3+")


class MemberResponse(Message):
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+")
    error_code: Int16 = field("3+")
