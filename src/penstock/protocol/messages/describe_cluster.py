"""DescribeCluster (API key 60). The brokers, or the controllers, of the cluster."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = field("0+")
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: bool = field("2+")


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: str = field("0+")
    controller_id: Int32 = field("0+", default=-1)
    brokers: list[DescribeClusterBroker] = field("0+")
    cluster_authorized_operations: Int32 = field("0+", default=-2147483648)


class DescribeClusterBroker(Message):
    broker_id: Int32 = field("0+")
    host: str = field("0+")
    port: Int32 = field("0+")
    rack: str | None = field("0+", nullable="0+", default=None)
    is_fenced: bool = field("2+")
