"""DescribeClientQuotas (API key 48). The quotas that match a filter."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Float64, Int8, Int16, Int32


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field("0+")
    strict: bool = field("0+")


class ComponentData(Message):
    entity_type: str = field("0+")
    match_type: Int8 = field("0+")
    match: str | None = field("0+", nullable="0+")


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    entries: list[EntryData] | None = field("0+", nullable="0+")


class EntryData(Message):
    entity: list[EntityData] = field("0+")
    values: list[ValueData] = field("0+")


class EntityData(Message):
    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


class ValueData(Message):
    key: str = field("0+")
    value: Float64 = field("0+")
