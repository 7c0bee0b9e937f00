"""CreateAcls (API key 30). Create access control entries."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field("0+")


class AclCreation(Message):
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: str = field("0+")
    host: str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[AclCreationResult] = field("0+")


class AclCreationResult(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
