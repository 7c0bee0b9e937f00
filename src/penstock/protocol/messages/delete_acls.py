"""DeleteAcls (API key 31). Delete the access control entries that match filters."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field("0+")


class DeleteAclsFilter(Message):
    resource_type_filter: Int8 = field("0+")
    resource_name_filter: str | None = field("0+", nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: str | None = field("0+", nullable="0+")
    host_filter: str | None = field("0+", nullable="0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    filter_results: list[DeleteAclsFilterResult] = field("0+")


class DeleteAclsFilterResult(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field("0+")


class DeleteAclsMatchingAcl(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    pattern_type: Int8 = field("1+", default=3)
    principal: str = field("0+")
    host: str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")
