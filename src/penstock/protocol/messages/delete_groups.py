"""DeleteGroups (API key 42). Delete groups that have no members."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class DeleteGroupsRequest(Message, key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = field("0+")


class DeleteGroupsResponse(Message, key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[DeletableGroupResult] = field("0+")


class DeletableGroupResult(Message):
    group_id: str = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("3+", nullable="3+", default=None, ignorable=True)
