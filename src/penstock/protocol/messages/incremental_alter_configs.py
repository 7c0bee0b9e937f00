"""IncrementalAlterConfigs (API key 44). Set, delete, append to and subtract from single settings."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.alter_configs import AlterConfigsResourceResponse
from penstock.protocol.primitives import Int8, Int32


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = field("0+")
    validate_only: bool = field("0+")


class AlterConfigsResource(Message):
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[AlterableConfig] = field("0+")


class AlterableConfig(Message):
    name: str = field("0+")
    config_operation: Int8 = field("0+")
    value: str | None = field("0+", nullable="0+")


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field("0+")
    responses: list[AlterConfigsResourceResponse] = field("0+")
