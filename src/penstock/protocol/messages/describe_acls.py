"""DescribeAcls (API key 29). The access control entries that match a filter."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8 = field("0+")
    resource_name_filter: str | None = field("0+", nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: str | None = field("0+", nullable="0+")
    host_filter: str | None = field("0+", nullable="0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resources: list[DescribeAclsResource] = field("0+")


class DescribeAclsResource(Message):
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription] = field("0+")


class AclDescription(Message):
    principal: str = field("0+")
    host: str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")
