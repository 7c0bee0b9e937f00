"""ListConfigResources (API key 74). List the names of resources that have a configuration."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = field("1+")


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    config_resources: list[ConfigResource] = field("0+")


class ConfigResource(Message):
    resource_name: str = field("0+")
    resource_type: Int8 = field("1+", default=16, ignorable=True)
