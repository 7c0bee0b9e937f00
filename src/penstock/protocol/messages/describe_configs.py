"""DescribeConfigs (API key 32). The configuration of topics, brokers, groups and client metrics."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class DescribeConfigsRequest(Message, key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field("0+")
    include_synonyms: bool = field("1+")
    include_documentation: bool = field("3+")


class DescribeConfigsResource(Message):
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configuration_keys: list[str] | None = field("0+", nullable="0+")


class DescribeConfigsResponse(Message, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[DescribeConfigsResult] = field("0+")


class DescribeConfigsResult(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    configs: list[DescribeConfigsResourceResult] = field("0+")


class DescribeConfigsResourceResult(Message):
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")
    read_only: bool = field("0+")
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: bool = field("0+")
    synonyms: list[DescribeConfigsSynonym] = field("1+", ignorable=True)
    config_type: Int8 = field("3+", ignorable=True)
    documentation: str | None = field("3+", nullable="0+", ignorable=True)


class DescribeConfigsSynonym(Message):
    name: str = field("1+")
    value: str | None = field("1+", nullable="0+")
    source: Int8 = field("1+")
