"""ApiVersions (API key 18). The API versions that a node serves, and the features of its cluster."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class ApiVersionsRequest(Message, key=18, versions="0-5", flexible="3+"):
    client_software_name: str = field("3+", ignorable=True)
    client_software_version: str = field("3+", ignorable=True)
    cluster_id: str | None = field("5+", nullable="5+", default=None, ignorable=True)
    node_id: Int32 = field("5+", default=-1, ignorable=True)


class ApiVersionsResponse(Message, key=18, versions="0-5", flexible="3+"):
    error_code: Int16 = field("0+")
    api_keys: list[ApiVersion] = field("0+")
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field("3+", tag=3, ignorable=True)


class ApiVersion(Message):
    api_key: Int16 = field("0+")
    min_version: Int16 = field("0+")
    max_version: Int16 = field("0+")


class SupportedFeatureKey(Message):
    name: str = field("3+")
    min_version: Int16 = field("3+")
    max_version: Int16 = field("3+")


class FinalizedFeatureKey(Message):
    name: str = field("3+")
    max_version_level: Int16 = field("3+")
    min_version_level: Int16 = field("3+")
