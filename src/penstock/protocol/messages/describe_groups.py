"""DescribeGroups (API key 15). The state and the members of classic groups."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    groups: list[str] = field("0+")
    include_authorized_operations: bool = field("3+")


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    groups: list[DescribedGroup] = field("0+")


class DescribedGroup(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("6+", nullable="6+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+")
    protocol_type: str = field("0+")
    protocol_data: str = field("0+")
    members: list[DescribedGroupMember] = field("0+")
    authorized_operations: Int32 = field("3+", default=-2147483648)


class DescribedGroupMember(Message):
    member_id: str = field("0+")
    group_instance_id: str | None = field("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field("0+")
    client_host: str = field("0+")
    member_metadata: bytes = field("0+")
    member_assignment: bytes = field("0+")
