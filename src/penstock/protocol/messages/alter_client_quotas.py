"""AlterClientQuotas (API key 49). Set and remove quotas."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Float64, Int16, Int32


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    entries: list[AlterClientQuotasRequestEntryData] = field("0+")
    validate_only: bool = field("0+")


class AlterClientQuotasRequestEntryData(Message):
    entity: list[EntityData] = field("0+")
    ops: list[OpData] = field("0+")


class EntityData(Message):
    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


class OpData(Message):
    key: str = field("0+")
    value: Float64 = field("0+")
    remove: bool = field("0+")


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    entries: list[AlterClientQuotasResponseEntryData] = field("0+")


class AlterClientQuotasResponseEntryData(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    entity: list[EntityData] = field("0+")
