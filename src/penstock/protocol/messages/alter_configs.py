"""AlterConfigs (API key 33). Replace whole configurations; superseded by IncrementalAlterConfigs."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = field("0+")
    validate_only: bool = field("0+")


class AlterConfigsResource(Message):
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[AlterableConfig] = field("0+")


class AlterableConfig(Message):
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    responses: list[AlterConfigsResourceResponse] = field("0+")


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
